// SPDX-License-Identifier: Apache-2.0
/*
 * A file with several programs in it, as GNU coreutils may be built. Whatever it is asked for, it copies its stdin.
 */
#include <unistd.h>

int main(void)
{
	char block[4096];
	ssize_t size;

	while ((size = read(0, block, sizeof(block))) > 0)
		if (write(1, block, size) != size)
			return 1;
	return size < 0;
}
