/* A library to preload: the N-th call of a process that writes to disk fails, in whatever thread and library it is made.

   strace counts the calls of each thread by itself; this counts those of all threads together, so that the faults of a
   conversion with its threads can be met one by one. Calls are numbered from 1 once `faults_arm` has been called, and
   the numbers live in memory that forked children share, so that a parent reads what its child has met.

   cc -shared -fPIC -O1 -o failing_calls.so failing_calls.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 1, REMOVES = 2 };
enum { KILL = -1, SHORT = -2 }; /* in the place of an errno */

struct shared {
    atomic_long count;        /* calls so far */
    atomic_long first, last;  /* those that fail; none while first is 0 */
    atomic_int code, kinds;
    atomic_long met;          /* how many failed */
    char name[32];            /* of the first that failed */
    atomic_int clock_jumps;   /* whether the wall clock jumps by ten years at every look */
    atomic_long looks;
};

static struct shared *shared;

__attribute__((constructor)) static void begin(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) _exit(70);
}

void faults_arm(long first, long last, int code, int kinds) {
    memset(shared->name, 0, sizeof shared->name);
    shared->count = shared->met = 0;
    shared->code = code;
    shared->kinds = kinds;
    shared->last = last;
    shared->first = first;
}

long faults_count(void) { return shared->count; }
long faults_met(void) { return shared->met; }
const char *faults_name(void) { return shared->name; }
void faults_jump(int on) { shared->looks = 0; shared->clock_jumps = on; }
long faults_looks(void) { return shared->looks; }

/* 0: make the call; else what it meets instead */
static int meet(const char *name, int kind) {
    if (!shared || !(shared->kinds & kind)) return 0;
    long number = atomic_fetch_add(&shared->count, 1) + 1;
    if (!shared->first || number < shared->first || number > shared->last) return 0;
    if (atomic_fetch_add(&shared->met, 1) == 0) strncpy(shared->name, name, sizeof shared->name - 1);
    if (shared->code == KILL) kill(getpid(), SIGKILL);
    return shared->code;
}

static int is_file(int descriptor) {
    struct stat status;
    int kept = errno;
    int found = descriptor > 2 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    errno = kept;
    return found;
}

#define NEXT(function) \
    static __typeof__(&function) next; \
    if (!next) next = (__typeof__(&function))dlsym(RTLD_NEXT, #function)

#define FAIL(name, kind) \
    do { int code = meet(name, kind); if (code > 0) { errno = code; return -1; } } while (0)

#define WRITING(function, parameters, descriptor, half, arguments) \
    ssize_t function parameters { \
        NEXT(function); \
        if (is_file(descriptor)) { \
            int code = meet(#function, WRITES); \
            if (code > 0) { errno = code; return -1; } \
            if (code == SHORT) { half; } \
        } \
        return next arguments; \
    }

WRITING(write, (int d, const void *b, size_t n), d, n = n > 1 ? n / 2 : n, (d, b, n))
WRITING(pwrite, (int d, const void *b, size_t n, off_t o), d, n = n > 1 ? n / 2 : n, (d, b, n, o))
WRITING(pwrite64, (int d, const void *b, size_t n, off64_t o), d, n = n > 1 ? n / 2 : n, (d, b, n, o))
WRITING(writev, (int d, const struct iovec *v, int n), d, n = n > 1 ? n / 2 : n, (d, v, n))
WRITING(pwritev, (int d, const struct iovec *v, int n, off_t o), d, n = n > 1 ? n / 2 : n, (d, v, n, o))
WRITING(pwritev64, (int d, const struct iovec *v, int n, off64_t o), d, n = n > 1 ? n / 2 : n, (d, v, n, o))

#define PLAIN(kind, function, parameters, arguments) \
    int function parameters { NEXT(function); FAIL(#function, kind); return next arguments; }

PLAIN(WRITES, fsync, (int d), (d))
PLAIN(WRITES, fdatasync, (int d), (d))
PLAIN(WRITES, syncfs, (int d), (d))
PLAIN(WRITES, ftruncate, (int d, off_t n), (d, n))
PLAIN(WRITES, ftruncate64, (int d, off64_t n), (d, n))
PLAIN(WRITES, truncate, (const char *p, off_t n), (p, n))
PLAIN(WRITES, rename, (const char *a, const char *b), (a, b))
PLAIN(WRITES, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b))
PLAIN(WRITES, renameat2, (int d, const char *a, int e, const char *b, unsigned f), (d, a, e, b, f))
PLAIN(WRITES, mkdir, (const char *p, mode_t m), (p, m))
PLAIN(WRITES, mkdirat, (int d, const char *p, mode_t m), (d, p, m))
PLAIN(REMOVES, unlink, (const char *p), (p))
PLAIN(REMOVES, unlinkat, (int d, const char *p, int f), (d, p, f))
PLAIN(REMOVES, rmdir, (const char *p), (p))

int posix_fallocate(int d, off_t o, off_t n) {
    NEXT(posix_fallocate);
    int code = meet("posix_fallocate", WRITES);
    return code > 0 ? code : next(d, o, n);
}

int posix_fallocate64(int d, off64_t o, off64_t n) {
    NEXT(posix_fallocate64);
    int code = meet("posix_fallocate", WRITES);
    return code > 0 ? code : next(d, o, n);
}

#define HAS_MODE(flags) ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE)
#define OPENING(function, parameters, named, with, without) \
    int function parameters { \
        NEXT(function); \
        mode_t mode = 0; \
        if (HAS_MODE(flags)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
            FAIL(named, WRITES); \
            return next with; \
        } \
        return next without; \
    }

OPENING(open, (const char *p, int flags, ...), flags & O_CREAT ? "open" : "open O_TMPFILE", (p, flags, mode), (p, flags))
OPENING(open64, (const char *p, int flags, ...), flags & O_CREAT ? "open" : "open O_TMPFILE", (p, flags, mode), (p, flags))
OPENING(openat, (int d, const char *p, int flags, ...), flags & O_CREAT ? "open" : "open O_TMPFILE", (d, p, flags, mode),
        (d, p, flags))
OPENING(openat64, (int d, const char *p, int flags, ...), flags & O_CREAT ? "open" : "open O_TMPFILE", (d, p, flags, mode),
        (d, p, flags))

static time_t jump(void) {
    if (!shared || !shared->clock_jumps) return 0;
    return (atomic_fetch_add(&shared->looks, 1) % 2 ? -1 : 1) * (time_t)(10 * 365 * 86400);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    NEXT(clock_gettime);
    int code = next(clock, found);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += jump();
    return code;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    NEXT(gettimeofday);
    int code = next(found, zone);
    if (!code) found->tv_sec += jump();
    return code;
}

time_t time(time_t *kept) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (kept) *kept = found.tv_sec;
    return found.tv_sec;
}
