/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a file and reads one byte of each page: touches FILE */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
	volatile unsigned char *map;
	struct stat status;
	long sum = 0;

	if (file < 0 || fstat(file, &status))
		return 1;
	map = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, file, 0);
	if (map == MAP_FAILED)
		return 1;
	for (long at = 0; at < status.st_size; at += 4096)
		sum += map[at];
	printf("%ld\n", sum);
	return 0;
}
