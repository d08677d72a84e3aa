/* Loaded before libc (LD_PRELOAD) by processes whose wall clock a chaos run may step: CHAOS_CLOCK_FILE holds the
 * nanoseconds that it is wrong by, one native int64. Monotonic clocks stay right, as when somebody steps a machine's
 * clock. (libfaketime 0.9.10 makes clock_nanosleep, and so Python's time.sleep, fail.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#define SECOND_NS 1000000000LL

static volatile const int64_t *wrong_by_ns;
static int (*right)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CHAOS_CLOCK_FILE");
  int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *shared = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (shared != MAP_FAILED) wrong_by_ns = shared;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  if (right == NULL) right = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = right(clock, at);
  if (failed == 0 && wrong_by_ns != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ns = at->tv_sec * SECOND_NS + at->tv_nsec + *wrong_by_ns;
    at->tv_sec = ns / SECOND_NS;
    at->tv_nsec = ns % SECOND_NS;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  if (failed == 0) {
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
  }
  return failed;
}

time_t time(time_t *at) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (at != NULL) *at = now.tv_sec;
  return now.tv_sec;
}
