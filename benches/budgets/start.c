/* Starts a program so many times, one after the other, each time with the same arguments, and writes a
 * line for each: its wall time in ns, its processor time in us, the most memory that it had in KiB.
 *
 *     start REPORT TIMES plain|synced|unsynced PROGRAM ARGUMENT...
 *
 * `unsynced` answers every system call that waits for the disk with 0 and does nothing. A library that
 * is loaded before others would not do: some of the program's syncs do not go through libc. `synced`
 * has a filter that lets everything pass, so that both pay for having one. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IS(call, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, then, 0)

static void filter(int drop) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        IS(fsync, 6), IS(fdatasync, 5), IS(syncfs, 4), IS(sync, 3), IS(msync, 2), IS(sync_file_range, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, drop ? SECCOMP_RET_ERRNO : SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("start: no filter of system calls");
        exit(1);
    }
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long us(struct timeval time) { return time.tv_sec * 1000000L + time.tv_usec; }

int main(int count, char **words) {
    FILE *report = count > 4 ? fopen(words[1], "we") : NULL;
    if (!report) {
        fprintf(stderr, "start: no report\n");
        return 2;
    }
    if (strcmp(words[3], "plain")) filter(!strcmp(words[3], "unsynced"));
    for (int left = atoi(words[2]); left > 0; left--) {
        int status;
        struct rusage used;
        long long begun = now();
        pid_t child = vfork();
        if (child == 0) {
            execvp(words[4], words + 4);
            _exit(127);
        }
        if (child < 0 || wait4(child, &status, 0, &used) != child || status != 0) {
            fprintf(stderr, "start: %s ended with status %#x\n", words[4], status);
            return 1;
        }
        long long took = now() - begun;
        fprintf(report, "%lld %ld %ld\n", took, us(used.ru_utime) + us(used.ru_stime), used.ru_maxrss);
    }
    return fclose(report) != 0;
}
