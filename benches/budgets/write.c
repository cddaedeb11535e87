/* Does the writes of one `enqueue`, and nothing else: the item, two syncs, a line of the ledger, a touch.
 *
 *     write ITEM tmp pending/DEST ledger wake */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHECK(done) if (!(done)) return perror("write: " #done), 1

int main(int count, char **words) {
    static char item[1 << 20];
    char temporary[4096], place[4096], line[160];
    struct timespec now;
    if (count != 6) return 2;
    int file = open(words[1], O_RDONLY);
    ssize_t length = read(file, item, sizeof item);
    CHECK(length > 0);
    close(file);
    clock_gettime(CLOCK_REALTIME, &now);
    /* As long as an item's id. */
    char name[37];
    snprintf(name, sizeof name, "%010d-%010ld-%014d", (int)now.tv_sec, now.tv_nsec, (int)getpid());
    snprintf(temporary, sizeof temporary, "%s/%s.jsonl", words[2], name);
    snprintf(place, sizeof place, "%s/%s.jsonl", words[3], name);
    CHECK((file = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600)) >= 0);
    CHECK(write(file, item, length) == length);
    CHECK(fsync(file) == 0);
    close(file);
    CHECK(rename(temporary, place) == 0);
    CHECK((file = open(words[3], O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK(fsync(file) == 0);
    close(file);
    int wide = snprintf(line, sizeof line, "{\"request_id\":\"%s\",\"destination\":\"bench\",\"principal\":\"alice\",\"at\":\"2026-11-29T15:40:03.123Z\"}\n", name);
    CHECK((file = open(words[4], O_WRONLY | O_CREAT | O_APPEND, 0600)) >= 0);
    CHECK(write(file, line, wide) == wide);
    close(file);
    CHECK(utimensat(AT_FDCWD, words[5], NULL, 0) == 0);
    puts(name);
    return 0;
}
