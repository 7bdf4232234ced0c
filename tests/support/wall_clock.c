/* Added to libfaketime, which does not know C11's wait: the Kafka client waits by it, until a moment
 * of the wall clock. Without this a client whose clock is set a month ahead waits for a month.
 *
 * As in the kernel a wait ends when the wall clock reaches its moment, and lasts longer when the
 * clock is set back meanwhile. So it looks again and again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 50000000LL
#define SECOND_NS 1000000000LL

typedef int wait_t(cnd_t *, mtx_t *, const struct timespec *);

static long long ns(const struct timespec *at) { return at->tv_sec * SECOND_NS + at->tv_nsec; }

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    wait_t *wait = (wait_t *)dlsym(RTLD_NEXT, "cnd_timedwait");
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now); /* what the test has set */
        long long left = ns(until) - ns(&now);
        if (left <= 0)
            return thrd_timedout;
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &now); /* the machine's */
        long long look = ns(&now) + (left < LOOK_NS ? left : LOOK_NS);
        struct timespec next = {look / SECOND_NS, look % SECOND_NS};
        int result = wait(condition, mutex, &next);
        if (result != thrd_timedout)
            return result;
    }
}
