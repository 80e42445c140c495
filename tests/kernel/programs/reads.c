/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a file in a known way and says what became of its pages, by asking the kernel before
 * each read which of them are in the page cache: by cachestat(2) where there is one (6.5), else
 * by mincore on a mapping that is never touched, which does not know of pages under I/O: what
 * comes in while we only wait a little was.
 *   reads FILE STEP…   prints: warm N ahead N miss N wasted N by cachestat|mincore
 * Steps; SIZE is in bytes:
 *   random sequential      posix_fadvise of the whole file
 *   willneed:AT:SIZE readahead:AT:SIZE
 *   seq:SIZE[:COUNT]       read to the end, or COUNT times
 *   at:AT:SIZE             one pread
 *   scattered:SIZE:COUNT   preads at random places that are multiples of SIZE
 *   strided:SIZE:STEP      preads of SIZE every STEP bytes
 *   backward:SIZE          preads from the end to the beginning
 *   streams:SIZE           both halves of the file in turn, through one descriptor
 *   vector:SIZE            preadv of two buffers, to the end
 *   splice:SIZE sendfile:SIZE   to /dev/null, to the end; the kernel makes sendfile a read
 *                          for each 64 KiB
 *   sleep:MS
 * Statically linked (see the Makefile), so that it reads no library.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* include/uapi/linux/mman.h; the same number on all architectures */
#define SYS_CACHESTAT 451
struct range {
	unsigned long long at, size;
};
struct cached {
	unsigned long long pages, dirty, writeback, evicted, recently_evicted;
};

#define PAGE 4096L

enum { COLD, WARM, READ = 4 };

static char buffer[16 << 20];
static unsigned char *map, *resident, *page;	/* page: what is known of each */
static long pages, size, last = -1;
static long warm, ahead, miss;
static int file, null, by_mincore;

static long must(long result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

/* Fills `resident` for `count` pages from `first` on. */
static void ask(long first, long count)
{
	struct range range = { first * PAGE, count * PAGE };
	struct cached cached;

	if (syscall(SYS_CACHESTAT, file, &range, &cached, 0)) {
		by_mincore = 1;
		must(mincore(map + first * PAGE, count * PAGE, resident), "mincore");
		if (!memchr(resident, 0, count))
			return;
		usleep(3000);
		must(mincore(map + first * PAGE, count * PAGE, resident), "mincore");
		return;
	}
	memset(resident, cached.pages > 0, count);
	if (cached.pages == 0 || cached.pages == (unsigned long long)count)
		return;
	range.size = PAGE;
	for (long i = 0; i < count; i++) {
		range.at = (first + i) * PAGE;
		must(syscall(SYS_CACHESTAT, file, &range, &cached, 0), "cachestat");
		resident[i] = cached.pages > 0;
	}
}

/* A read of these bytes is about to be made. */
static void note(long at, long count)
{
	long first = at / PAGE, end;

	if (at >= size || !count)
		return;
	if (at + count > size)
		count = size - at;
	end = (at + count - 1) / PAGE;
	ask(first, end - first + 1);
	for (long i = first; i <= end; i++) {
		if (i == first && i == last)	/* the rest of a page that the read before has begun */
			continue;
		if (!(resident[i - first] & 1))
			miss++;
		else if (page[i] & WARM)
			warm++;
		else
			ahead++;
		page[i] |= READ | WARM;
	}
	last = end;
}

static void read_at(long at, long count)
{
	note(at, count);
	must(pread(file, buffer, count, at), "pread");
}

static long wasted(void)
{
	long found = 0;

	ask(0, pages);
	for (long i = 0; i < pages; i++)
		found += resident[i] & 1 && !page[i];
	return found;
}

static void step(const char *name, long a, long b)
{
	long at = 0, some;

	if (!strcmp(name, "random")) {
		must(-posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM), name);
	} else if (!strcmp(name, "sequential")) {
		must(-posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL), name);
	} else if (!strcmp(name, "willneed")) {
		must(-posix_fadvise(file, a, b, POSIX_FADV_WILLNEED), name);
	} else if (!strcmp(name, "readahead")) {
		must(readahead(file, a, b), name);
	} else if (!strcmp(name, "seq")) {
		at = must(lseek(file, 0, SEEK_CUR), name);
		for (long i = 0; !b || i < b; i++) {
			note(at, a);
			some = must(read(file, buffer, a), name);
			if (!some)
				break;
			at += some;
		}
	} else if (!strcmp(name, "at")) {
		read_at(a, b);
	} else if (!strcmp(name, "scattered")) {
		srandom(1);
		while (b--)
			read_at(random() % (size / a) * a, a);
	} else if (!strcmp(name, "strided")) {
		for (; at < size; at += b)
			read_at(at, a);
	} else if (!strcmp(name, "backward")) {
		for (at = size - a; at >= 0; at -= a)
			read_at(at, a);
	} else if (!strcmp(name, "streams")) {
		for (; at < size / 2; at += a) {
			read_at(at, a);
			read_at(size / 2 + at, a);
		}
	} else if (!strcmp(name, "vector")) {
		struct iovec two[] = { { buffer, a / 2 }, { buffer + a / 2, a / 2 } };

		for (; at < size; at += a) {
			note(at, a);
			must(preadv(file, two, 2, at), name);
		}
	} else if (!strcmp(name, "splice")) {
		int own[2];

		must(pipe(own), name);
		must(fcntl(own[1], F_SETPIPE_SZ, a), name);
		for (; at < size; at += some) {
			note(at, a);
			some = must(splice(file, NULL, own[1], NULL, a, 0), name);
			for (long left = some; left;)
				left -= must(splice(own[0], NULL, null, NULL, left, 0), name);
		}
	} else if (!strcmp(name, "sendfile")) {
		for (; at < size; at += some) {
			note(at, a);
			some = must(sendfile(null, file, NULL, a), name);
		}
	} else if (!strcmp(name, "sleep")) {
		usleep(a * 1000);
	} else {
		fprintf(stderr, "reads: no such step: %s\n", name);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct stat status;

	if (argc < 2)
		return 2;
	file = must(open(argv[1], O_RDONLY), argv[1]);
	null = must(open("/dev/null", O_WRONLY), "/dev/null");
	must(fstat(file, &status), "fstat");
	size = status.st_size;
	pages = (size + PAGE - 1) / PAGE;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
	page = calloc(pages, 1);
	resident = calloc(pages + 1, 1);
	if (map == MAP_FAILED || !page || !resident)
		must(-1, "memory");
	ask(0, pages);
	for (long i = 0; i < pages; i++)
		page[i] = resident[i] & 1 ? WARM : COLD;
	for (int i = 2; i < argc; i++) {
		char name[16] = "";
		long a = 0, b = 0;

		sscanf(argv[i], "%15[^:]:%ld:%ld", name, &a, &b);
		step(name, a, b);
	}
	printf("warm %ld ahead %ld miss %ld wasted %ld ", warm, ahead, miss, wasted());
	puts(by_mincore ? "by mincore" : "by cachestat");
	return 0;
}
