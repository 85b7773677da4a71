/* Lets the n-th call that changes a file or folder below one place fail, as a full or dying disk would.

   Preloaded (LD_PRELOAD) under a Python process; `fault_arm` says which call fails and how, `fault_count` how many there
   were. The counter is in memory that forked children share with their parent. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct state { long count; long fails_at; int error; int stays; char below[PATH_MAX]; char last[64]; };
static struct state *state;

__attribute__((constructor)) static void begin(void) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(state, 0, sizeof *state);
}

void fault_arm(const char *below, long fails_at, int error, int stays) {
    state->count = 0; state->fails_at = fails_at; state->error = error; state->stays = stays; state->last[0] = 0;
    strncpy(state->below, below, PATH_MAX - 1);
}
long fault_count(void) { return state->count; }
const char *fault_last(void) { return state->last; }

static int fails(const char *call) {
    long number = __sync_add_and_fetch(&state->count, 1);
    if (state->fails_at == 0 || number < state->fails_at || (number > state->fails_at && !state->stays)) return 0;
    strncpy(state->last, call, sizeof state->last - 1);
    errno = state->error;
    return 1;
}
static int below(const char *path) {
    char whole[PATH_MAX];
    if (!state || !state->below[0] || !path) return 0;
    if (path[0] != '/') {
        if (!getcwd(whole, sizeof whole)) return 0;
        path = whole;
    }
    return strncmp(path, state->below, strlen(state->below)) == 0;
}
static int below_at(int folder, const char *path) {
    char link[64], whole[PATH_MAX];
    if (!state || !state->below[0]) return 0;
    if (!path || path[0] == '/' || folder == AT_FDCWD) return below(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, whole, sizeof whole - 1);
    if (size <= 0) return 0;
    whole[size] = 0;
    return below(whole);
}
static int behind(int file) {
    char link[64], whole[PATH_MAX];
    if (!state || !state->below[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, whole, sizeof whole - 1);
    if (size <= 0) return 0;
    whole[size] = 0;
    return below(whole);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE() mode_t mode = 0; if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE() if (WRITES(flags) && below(path) && fails("open")) return -1; return NEXT(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE() if (WRITES(flags) && below(path) && fails("open")) return -1; return NEXT(open64)(path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE() if (WRITES(flags) && below_at(folder, path) && fails("openat")) return -1; return NEXT(openat)(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE() if (WRITES(flags) && below_at(folder, path) && fails("openat")) return -1; return NEXT(openat64)(folder, path, flags, mode); }
ssize_t write(int file, const void *bytes, size_t size) { if (behind(file) && fails("write")) return -1; return NEXT(write)(file, bytes, size); }
ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) { if (behind(file) && fails("pwrite")) return -1; return NEXT(pwrite)(file, bytes, size, at); }
ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) { if (behind(file) && fails("pwrite")) return -1; return NEXT(pwrite64)(file, bytes, size, at); }
ssize_t writev(int file, const struct iovec *parts, int count) { if (behind(file) && fails("writev")) return -1; return NEXT(writev)(file, parts, count); }
int fsync(int file) { if (behind(file) && fails("fsync")) return -1; return NEXT(fsync)(file); }
int fdatasync(int file) { if (behind(file) && fails("fdatasync")) return -1; return NEXT(fdatasync)(file); }
int ftruncate(int file, off_t size) { if (behind(file) && fails("ftruncate")) return -1; return NEXT(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { if (behind(file) && fails("ftruncate")) return -1; return NEXT(ftruncate64)(file, size); }
int rename(const char *from, const char *to) { if (below(to) && fails("rename")) return -1; return NEXT(rename)(from, to); }
int renameat(int a, const char *from, int b, const char *to) { if (below_at(b, to) && fails("renameat")) return -1; return NEXT(renameat)(a, from, b, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned how) { if (below_at(b, to) && fails("renameat2")) return -1; return NEXT(renameat2)(a, from, b, to, how); }
int link(const char *from, const char *to) { if (below(to) && fails("link")) return -1; return NEXT(link)(from, to); }
int linkat(int a, const char *from, int b, const char *to, int how) { if (below_at(b, to) && fails("linkat")) return -1; return NEXT(linkat)(a, from, b, to, how); }
int mkdir(const char *path, mode_t mode) { if (below(path) && fails("mkdir")) return -1; return NEXT(mkdir)(path, mode); }
int mkdirat(int folder, const char *path, mode_t mode) { if (below_at(folder, path) && fails("mkdirat")) return -1; return NEXT(mkdirat)(folder, path, mode); }
int unlink(const char *path) { if (below(path) && fails("unlink")) return -1; return NEXT(unlink)(path); }
int unlinkat(int folder, const char *path, int how) { if (below_at(folder, path) && fails("unlinkat")) return -1; return NEXT(unlinkat)(folder, path, how); }
int rmdir(const char *path) { if (below(path) && fails("rmdir")) return -1; return NEXT(rmdir)(path); }
