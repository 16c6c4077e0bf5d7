// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes all requests that the kernel engine must refuse, as root and as another user: its files in
 * /proc/sys/klogger, the requests of /dev/klogger, its mappings. klogger.ko and klogger_flood.ko
 * are loaded, and no recording runs.
 *
 * Prints results that differ from the expected ones; the last line has the number of requests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <klogger/device.h>

#define CONTROL "/proc/sys/klogger/"
#define PAGE 4096ul
#define RING (64u << 10)
#define FLOOD_BASE 100

static int questions, wrong;
static volatile char touched;

/* `result` of a system call, and the expected error; 0: it should succeed. */
static void expect(const char *what, const char *detail, long result, int error)
{
	int got = result < 0 ? errno : 0;

	questions++;
	if (got == error)
		return;
	wrong++;
	printf("%s %s: %s instead of %s\n", what, detail, strerror(got), strerror(error));
}

static void check(const char *what, const char *detail, int good)
{
	errno = EBADMSG;
	expect(what, detail, good ? 0 : -1, 0);
}

/* ---- Files ---- */

static long write_at(const char *name, const void *bytes, size_t size, off_t at)
{
	char path[128];
	long result;
	int file, kept;

	snprintf(path, sizeof(path), CONTROL "%s", name);
	file = open(path, O_WRONLY);
	if (file < 0)
		return -1;
	result = pwrite(file, bytes, size, at);
	kept = errno;
	close(file);
	errno = kept;
	return result;
}

static long write_text(const char *name, const char *text)
{
	return write_at(name, text, strlen(text), 0);
}

static long number_in(const char *name)
{
	char path[128], text[32] = "";
	int file;

	snprintf(path, sizeof(path), CONTROL "%s", name);
	file = open(path, O_RDONLY);
	if (file < 0 || read(file, text, sizeof(text) - 1) < 0)
		return -1;
	close(file);
	return atol(text);
}

/* Writes this many copies of one letter. */
static long write_many(const char *name, char letter, size_t size)
{
	char *bytes = malloc(size);
	long result;

	memset(bytes, letter, size);
	result = write_at(name, bytes, size, 0);
	free(bytes);
	return result;
}

static void misuse_number(const char *name, const char *const *beyond)
{
	static const char *const junk[] = {
		"x", "-1", "0x", "1e3", "99999999999999999999", "\001\377\002", " ", ""};
	long before = number_in(name);

	for (int i = 0; *junk[i]; i++)
		expect("junk in", name, write_text(name, junk[i]), EINVAL);
	for (; *beyond; beyond++)
		expect("too much for", name, write_text(name, *beyond), EINVAL);
	expect("nothing for", name, write_text(name, ""), 0);
	expect("zeros for", name, write_at(name, "\0\0\0\0", 4, 0), EINVAL);
	expect("1 MB of letters for", name, write_many(name, 'a', 1 << 20), EINVAL);
	expect("1 MB of digits for", name, write_many(name, '1', 1 << 20), EINVAL);
	expect("8 MB of digits for", name, write_many(name, '1', 8 << 20), ENOMEM);
	/* Writes at an offset are ignored, as in all such files. */
	expect("an offset in", name, write_at(name, "1", 1, 1), 0);
	expect("a large offset in", name, write_at(name, "1", 1, 1l << 40), 0);
	check("unchanged:", name, before >= 0 && number_in(name) == before);
}

static void misuse_mark(void)
{
	expect("mark", "without a number", write_text("mark", "warm"), EINVAL);
	expect("mark", "empty", write_text("mark", "\n"), EINVAL);
	expect("mark", "too large", write_text("mark", "9223372036854775808"), ERANGE);
	expect("mark", "binary", write_at("mark", "\0\1\2", 3, 0), EINVAL);
	expect("mark", "at an offset", write_at("mark", "1", 1, 7), EINVAL);
	expect("mark", "1 MB of letters", write_many("mark", 'a', 1 << 20), EINVAL);
	expect("mark", "without a recording", write_text("mark", "1 here"), ENODATA);
	expect("mark", "to read", open(CONTROL "mark", O_RDONLY), EACCES);
}

static void misuse_files(void)
{
	misuse_number("enable", (const char *const[]){ "2", NULL });
	misuse_number("FLOOD", (const char *const[]){ "2", "256", NULL });
	misuse_number("buffer_size", (const char *const[]){ "0", "3", "512", "4294967297", NULL });
	misuse_number("lowwater", (const char *const[]){ "0", "91", "4294967306", NULL });
	misuse_number("benchmarks/iterations", (const char *const[]){ "0", "10000001", NULL });
	misuse_mark();
	expect("benchmark", "to write", write_text("benchmarks/FLOOD", "1"), EACCES);
	expect("a file that is not there", "", write_text("NONE", "1"), ENOENT);
	expect("an event's file", "to make", open(CONTROL "NEW", O_CREAT | O_WRONLY, 0600), ENOENT);
	expect("an event's file", "to remove", unlink(CONTROL "FLOOD"), EACCES);
}

/* ---- Requests ---- */

static int device(void)
{
	int file = open("/dev/klogger", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	expect("open", "", file, 0);
	return file;
}

/* Memory whose last `size` bytes are right before an unmapped page. */
static void *at_the_edge(size_t size)
{
	char *pages =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(pages + PAGE, PAGE, PROT_NONE);
	return pages + PAGE - size;
}

static void misuse_numbers_of_requests(int file)
{
	char room[256] = "";

	for (unsigned int number = 0; number < 256; number++) {
		expect("a request of no size", "",
		       ioctl(file, _IOC(_IOC_READ, 'k', number, 0), room), ENOTTY);
		expect("a request of another size", "",
		       ioctl(file, _IOC(_IOC_WRITE, 'k', number, 255), room), ENOTTY);
		expect("a request of others", "",
		       ioctl(file, _IOWR('K', number, struct klogger_use), room), ENOTTY);
	}
	for (unsigned int number = 10; number < 256; number++)
		expect("a request that is not there", "", ioctl(file, _IO('k', number), room),
		       ENOTTY);
}

static void misuse_pointers(int file)
{
	static const struct {
		const char *name;
		unsigned long request;
	} list[] = {
		{"ABOUT", KLOGGER_IOC_ABOUT}, {"SCHEMA", KLOGGER_IOC_SCHEMA},
		{"USE", KLOGGER_IOC_USE},     {"START", KLOGGER_IOC_START},
		{"EVENT", KLOGGER_IOC_EVENT}, {"PROBE", KLOGGER_IOC_PROBE},
	};
	void *const bad[] = {NULL, (void *)1, (void *)0xffff888000000000ul, (void *)~0ul,
			     at_the_edge(4)};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		for (size_t j = 0; j < sizeof(bad) / sizeof(bad[0]); j++)
			expect("a bad pointer for", list[i].name,
			       ioctl(file, list[i].request, bad[j]), EFAULT);
}

/* The built-in schema, or the one of this name. */
static struct klogger_schema_about schema_of(int file, const char *name)
{
	struct klogger_schema_about about = {};

	for (about.index = 0; about.index < 64; about.index++)
		if (!ioctl(file, KLOGGER_IOC_SCHEMA, &about) && !strcmp(about.name, name))
			return about;
	check("a schema", name, 0);
	exit(1);
}

static void misuse_schemata(int file)
{
	struct klogger_schema_about about = { .index = 0 };
	struct klogger_probe_about probe = { .index = 0, .place = 0xffffffff };

	/* A name without an end where the kernel writes its own. */
	memset(about.name, 'A', sizeof(about.name));
	expect("SCHEMA", "", ioctl(file, KLOGGER_IOC_SCHEMA, &about), 0);
	check("SCHEMA", "name", !strcmp(about.name, "klogger"));
	expect("PROBE", "of a place too far", ioctl(file, KLOGGER_IOC_PROBE, &probe), ENOENT);
	for (unsigned int index = 5; index; index <<= 1) {
		about.index = probe.index = index;
		probe.place = 0;
		expect("SCHEMA", "that is not there", ioctl(file, KLOGGER_IOC_SCHEMA, &about),
		       ENOENT);
		expect("PROBE", "of no schema", ioctl(file, KLOGGER_IOC_PROBE, &probe), ENOENT);
	}
}

static void misuse_use(int file)
{
	struct klogger_schema_about flood = schema_of(file, "flood");
	struct klogger_use use = {
		.index = flood.index, .base = FLOOD_BASE, .text_digest = flood.text_digest + 1};
	static const unsigned int bases[] = { 0, 1023, 1024, 1025, 0x7fffffff, 0xffffffff };

	expect("USE", "of another text", ioctl(file, KLOGGER_IOC_USE, &use), ESTALE);
	use.text_digest--;
	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		use.base = bases[i];
		expect("USE", "with such a base", ioctl(file, KLOGGER_IOC_USE, &use), EINVAL);
	}
	use.index = 0xffffffff;
	expect("USE", "of no schema", ioctl(file, KLOGGER_IOC_USE, &use), ENOENT);
}

static void misuse_start(int file)
{
	static const uint64_t sizes[] = {1,         3,          8 << 10,    (16 << 10) + 8,
					 512 << 20, 1ull << 32, 1ull << 63, ~0ull};
	struct klogger_start start = { .lowwater = 10 };
	struct klogger_event_on event = { .id = FLOOD_BASE, .on = 1 };
	struct klogger_rings_about rings;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		start.ring_size = sizes[i];
		expect("START", "with such a size", ioctl(file, KLOGGER_IOC_START, &start), EINVAL);
	}
	start.ring_size = RING;
	start.lowwater = 91;
	expect("START", "with 91 %", ioctl(file, KLOGGER_IOC_START, &start), EINVAL);
	start.lowwater = 0xffffffff;
	expect("START", "with 2^32 - 1 %", ioctl(file, KLOGGER_IOC_START, &start), EINVAL);
	expect("RINGS", "before START", ioctl(file, KLOGGER_IOC_RINGS, &rings), ENODATA);
	expect("ATTACH", "before START", ioctl(file, KLOGGER_IOC_ATTACH), ENODATA);
	expect("FORGET", "before START", ioctl(file, KLOGGER_IOC_FORGET), ENODATA);
	expect("EVENT", "before USE", ioctl(file, KLOGGER_IOC_EVENT, &event), ENOENT);
	expect("DETACH", "before ATTACH", ioctl(file, KLOGGER_IOC_DETACH), 0);
}

static void misuse_requests(void)
{
	char small[3];
	int file = device();

	expect("open", "by two", open("/dev/klogger", O_RDWR), EBUSY);
	expect("read", "3 bytes", read(file, small, sizeof(small)), EINVAL);
	expect("read", "without calls", read(file, at_the_edge(4), 4), EAGAIN);
	expect("write", "", write(file, "1", 1), EINVAL);
	expect("seek", "", lseek(file, 0, SEEK_SET), ESPIPE);
	misuse_numbers_of_requests(file);
	misuse_pointers(file);
	misuse_schemata(file);
	misuse_use(file);
	misuse_start(file);
	close(file);
}

/* ---- Mappings ---- */

/* Starts a valid recording, without its mappings. Returns the bytes of all rings. */
static size_t start(int file)
{
	struct klogger_schema_about flood = schema_of(file, "flood");
	struct klogger_use use = {
		.index = flood.index, .base = FLOOD_BASE, .text_digest = flood.text_digest};
	struct klogger_start start = { .ring_size = RING, .lowwater = 10 };
	struct klogger_about about = {};

	expect("ABOUT", "", ioctl(file, KLOGGER_IOC_ABOUT, &about), 0);
	expect("USE", "", ioctl(file, KLOGGER_IOC_USE, &use), 0);
	expect("START", "", ioctl(file, KLOGGER_IOC_START, &start), 0);
	return start.stride * about.cpus;
}

static void attach(int file)
{
	struct klogger_event_on event = { .id = FLOOD_BASE, .on = 1 };

	expect("ATTACH", "", ioctl(file, KLOGGER_IOC_ATTACH), 0);
	expect("FORGET", "", ioctl(file, KLOGGER_IOC_FORGET), 0);
	expect("EVENT", "", ioctl(file, KLOGGER_IOC_EVENT, &event), 0);
}

static void refuse_map(const char *what, int file, size_t size, int protection, int flags,
		       uint64_t offset, int error)
{
	void *at = mmap(NULL, size, protection, flags, file, offset);

	expect("mmap", what, at == MAP_FAILED ? -1 : 0, error);
}

static char *map(int file, size_t size, uint64_t offset)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);

	expect("mmap", "", at == MAP_FAILED ? -1 : 0, 0);
	return at;
}

static void refuse_mappings(int file, size_t all)
{
	const int rw = PROT_READ | PROT_WRITE;
	static const uint64_t offsets[] = {PAGE, KLOGGER_MAP_SCOPE - PAGE, 6ull << 40, 1ull << 62};

	refuse_map("too short", file, all - PAGE, rw, MAP_SHARED, 0, EINVAL);
	refuse_map("too long", file, all + PAGE, rw, MAP_SHARED, 0, EINVAL);
	refuse_map("empty", file, 0, rw, MAP_SHARED, 0, EINVAL);
	refuse_map("of one's own", file, all, rw, MAP_PRIVATE, 0, EINVAL);
	refuse_map("to read, of one's own", file, all, PROT_READ, MAP_PRIVATE, 0, EINVAL);
	refuse_map("to be run", file, all, PROT_READ | PROT_EXEC, MAP_SHARED, 0, EPERM);
	refuse_map("scope, too long", file, KLOGGER_SCOPE_BYTES + PAGE, rw, MAP_SHARED,
		   KLOGGER_MAP_SCOPE, EINVAL);
	refuse_map("hits, too long", file, 2 * PAGE, rw, MAP_SHARED, KLOGGER_MAP_FIRED, EINVAL);
	refuse_map("ringless, too long", file, 3 * PAGE, rw, MAP_SHARED, KLOGGER_MAP_RINGLESS,
		   EINVAL);
	refuse_map("stacks not requested", file, sizeof(struct klogger_stacks), rw, MAP_SHARED,
		   KLOGGER_MAP_STACKS, ENODATA);
	refuse_map("an anchor, too large", file, KLOGGER_ANCHOR_MAX + PAGE, rw, MAP_SHARED,
		   KLOGGER_MAP_ANCHOR, ENOSPC);
	for (int i = 0; i < KLOGGER_ANCHORS_MAX; i++) {
		char *anchor = map(file, PAGE, KLOGGER_MAP_ANCHOR);

		anchor[PAGE - 1] = 1;
		munmap(anchor, PAGE);
	}
	refuse_map("an anchor too many", file, PAGE, rw, MAP_SHARED, KLOGGER_MAP_ANCHOR, ENOSPC);
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		refuse_map("of nothing", file, all, rw, MAP_SHARED, offsets[i], EINVAL);
}

/* The exit status of a child that touches this address. */
static int child_touches(const char *at)
{
	int status;
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_DUMPABLE, 0);
		_exit(*(volatile const char *)at & 0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void bend_mappings(int file, size_t all)
{
	char *rings = map(file, all, 0), *again = map(file, all, 0), *own, *cut;

	expect("mprotect", "to be run", mprotect(rings, PAGE, PROT_READ | PROT_EXEC), EACCES);
	expect("mremap", "to more",
	       mremap(rings, all, all + PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0, EFAULT);
	expect("mremap", "to less", mremap(again, all, all - PAGE, 0) == MAP_FAILED ? -1 : 0, 0);
	expect("madvise", "", madvise(rings, all, MADV_DONTNEED), 0);
	/* All pages, including those of CPUs that do not exist. */
	for (size_t at = 0; at < all; at += PAGE)
		touched = rings[at];
	check("a child", "has no mapping", child_touches(rings) == SIGSEGV);
	expect("madvise", "for a child", madvise(rings, all, MADV_DOFORK), 0);
	check("a child", "has one if it must", child_touches(rings) == 0);

	own = map(file, KLOGGER_SCOPE_BYTES, KLOGGER_MAP_SCOPE);
	cut = map(file, KLOGGER_SCOPE_BYTES, KLOGGER_MAP_SCOPE);
	own[5 * PAGE] = 77;
	expect("munmap", "of the beginning", munmap(cut, 5 * PAGE), 0);
	check("a mapping without its beginning", "", cut[5 * PAGE] == 77);
	munmap(cut + 5 * PAGE, KLOGGER_SCOPE_BYTES - 5 * PAGE);
	munmap(own, KLOGGER_SCOPE_BYTES);
	munmap(rings, all);
	munmap(again, all - PAGE);
}

static void flood(int times)
{
	for (int i = 0; i < times; i++)
		prctl(PR_SET_NAME, i % 2 ? "abuse" : "abused");
}

/*
 * The rings of a recording whose file was closed: they exist as long as they are mapped, and so
 * does the recording.
 */
static void outlive(int file, size_t all)
{
	char *rings = map(file, all, 0);

	attach(file);
	flood(1000);
	close(file);
	expect("open", "while rings are mapped", open("/dev/klogger", O_RDWR), EBUSY);
	flood(1000);
	check("a closed recording", "has events",
	      ((struct klogger_ring *)rings)->head > 0 ||
		      ((struct klogger_ring *)(rings + all / 2))->head > 0);
	munmap(rings, all);
	close(device());
}

static void misuse_mappings(void)
{
	struct klogger_start start_again = { .ring_size = RING };
	struct klogger_event_on event = { .id = 99, .on = 1 };
	int file = device();
	size_t all;

	refuse_map("before START", file, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, ENODATA);
	all = start(file);
	expect("START", "twice", ioctl(file, KLOGGER_IOC_START, &start_again), EBUSY);
	misuse_pointers(file);
	event.id = 1000;
	expect("EVENT", "that is not there", ioctl(file, KLOGGER_IOC_EVENT, &event), ENOENT);
	expect("other rings", "before they are mapped", write_text("buffer_size", "1"), EBUSY);
	expect("benchmark", "during a recording", number_in("benchmarks/FLOOD"), EBUSY);
	refuse_mappings(file, all);
	bend_mappings(file, all);
	outlive(file, all);
}

/* ---- Recorders that are killed, and requests in parallel ---- */

static void die_recording(void)
{
	int status, tries, file;
	pid_t child = fork();

	if (!child) {
		file = device();
		map(file, start(file), 0);
		attach(file);
		flood(1000);
		raise(SIGKILL);
	}
	waitpid(child, &status, 0);
	for (tries = 0; (file = open("/dev/klogger", O_RDWR)) < 0 && tries < 1000; tries++)
		usleep(10000);
	expect("open", "after a recorder was killed", file, 0);
	close(file);
}

static int raced = -1, races_end;

/* Requests and mappings while the other thread opens, starts and closes: any result is valid. */
static void *race(void *unused)
{
	struct klogger_start start = { .ring_size = RING };
	char room[256] = "";

	while (!__atomic_load_n(&races_end, __ATOMIC_RELAXED)) {
		int file = __atomic_load_n(&raced, __ATOMIC_RELAXED);
		size_t size = 2 * (sizeof(struct klogger_ring) + RING + KLOGGER_SLACK) +
			      2 * (sizeof(struct klogger_ring) + KLOGGER_NESTED + KLOGGER_SLACK);
		char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

		if (at != MAP_FAILED) {
			for (size_t i = 0; i < size; i += PAGE)
				touched = at[i];
			munmap(at, size);
		}
		ioctl(file, KLOGGER_IOC_START, &start);
		ioctl(file, KLOGGER_IOC_DETACH);
		read(file, room, sizeof(room));
		flood(10);
	}
	return unused;
}

static void race_each_other(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, race, NULL);
	for (int i = 0; i < 20; i++) {
		struct klogger_schema_about schema;
		struct klogger_use use;
		int file = open("/dev/klogger", O_RDWR | O_NONBLOCK);

		if (file < 0)
			continue;
		schema = schema_of(file, "flood");
		use = (struct klogger_use){.index = schema.index,
					   .base = FLOOD_BASE,
					   .text_digest = schema.text_digest};
		ioctl(file, KLOGGER_IOC_USE, &use);
		__atomic_store_n(&raced, file, __ATOMIC_RELAXED);
		ioctl(file, KLOGGER_IOC_START, &(struct klogger_start){ .ring_size = RING });
		ioctl(file, KLOGGER_IOC_ATTACH);
		ioctl(file, KLOGGER_IOC_EVENT,
		      &(struct klogger_event_on){.id = FLOOD_BASE, .on = 1});
		flood(100);
		close(file);
	}
	__atomic_store_n(&races_end, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	close(device());
}

/* ---- Failing allocations, in a kernel with fault injection ---- */

static int fail_nth(int nth)
{
	char text[16] = "";
	int file = open("/proc/thread-self/fail-nth", O_RDWR), left = -1;

	if (file < 0)
		return -1;
	if (read(file, text, sizeof(text) - 1) > 0)
		left = atoi(text);
	dprintf(file, "%d", nth);
	close(file);
	return left;
}

/* Each allocation of a START fails once. */
static void starve_recordings(void)
{
	for (int nth = 1, left = 0; !left; nth++) {
		struct klogger_start start = { .ring_size = 16 << 10 };
		int file = device(), error;

		fail_nth(nth);
		error = ioctl(file, KLOGGER_IOC_START, &start) ? errno : 0;
		left = fail_nth(0);
		check("START", "without memory", !error || (!left && error == ENOMEM));
		close(file);
	}
}

/* Every third allocation when the module is loaded fails once, until it can be loaded. */
static void starve_module(const char *path, const char *name)
{
	for (int nth = 1, left = 0; !left; nth += 3) {
		int file = open(path, O_RDONLY | O_CLOEXEC);
		long result;

		fail_nth(nth);
		result = syscall(SYS_finit_module, file, "", 0);
		left = fail_nth(0);
		check("a module", "without memory", !result || !left);
		if (!result)
			expect("unload", name, syscall(SYS_delete_module, name, O_NONBLOCK), 0);
		close(file);
	}
}

static void ask_as_somebody_else(void)
{
	static const char *const files[] = {"enable",   "FLOOD", "buffer_size",
					    "lowwater", "mark",  "benchmarks/FLOOD"};

	expect("setuid", "", setuid(65534), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		expect("another user writes", files[i], write_text(files[i], "1"), EACCES);
		errno = 0;
		expect("another user reads", files[i], number_in(files[i]), EACCES);
	}
	expect("another user opens", "the device", open("/dev/klogger", O_RDONLY), EACCES);
}

/* With paths of klogger.ko and of another module: only the tests of failing allocations. */
int main(int argc, char **argv)
{
	if (argc == 3) {
		starve_module(argv[1], "klogger");
		expect("load", "klogger", syscall(SYS_finit_module, open(argv[1], O_RDONLY), "", 0),
		       0);
		starve_module(argv[2], "klogger_flood");
		starve_recordings();
		expect("unload", "klogger", syscall(SYS_delete_module, "klogger", O_NONBLOCK), 0);
		printf("%d questions, %d wrong answers\n", questions, wrong);
		return wrong != 0;
	}
	misuse_files();
	misuse_requests();
	misuse_mappings();
	die_recording();
	race_each_other();
	ask_as_somebody_else();
	printf("%d questions, %d wrong answers\n", questions, wrong);
	return wrong != 0;
}
