/* The asynchronous client in C, on an event loop of poll(2): a hundred additions in flight over one
 * connection.
 *
 *   c_event_loop [HOST:PORT]
 */
#include <poll.h>
#include <rkv/c.h>
#include <stdio.h>

struct tally {
  int done;
  int failed;
};

static void added(void* context, const rkv_result* result) {
  struct tally* const tally = context;
  ++tally->done;
  if (result->status != RKV_OK) ++tally->failed;
}

static void run_loop(rkv_async* client) {
  while (rkv_async_in_flight(client) != 0) {
    rkv_async_poll(client);
    if (rkv_async_in_flight(client) == 0 || !rkv_async_arm(client)) continue;
    struct pollfd readable = {.fd = rkv_async_descriptor(client), .events = POLLIN};
    poll(&readable, 1, -1); /* a program has descriptors of its own here, too */
  }
}

int main(int argc, char** argv) {
  rkv_error error;
  rkv_options* options = rkv_options_new();
  if (options == NULL) return 1;
  rkv_options_set(options, "repeat-connect", "false", NULL); /* one attempt */
  rkv_status status = argc > 1 ? rkv_options_set(options, "server", argv[1], &error) : RKV_OK;
  rkv_async* client = NULL;
  if (status == RKV_OK) status = rkv_async_connect(options, &client, &error);
  rkv_options_free(options);
  if (status != RKV_OK) {
    fprintf(stderr, "connect: %s\n", error.text);
    return 1;
  }
  struct tally tally = {0, 0};
  for (int i = 0; i < 100; ++i) {
    if (rkv_async_incr(client, "additions", 9, 1, NULL, NULL, added, &tally, &error) != RKV_OK)
      fprintf(stderr, "incr: %s\n", error.text);
  }
  run_loop(client);
  printf("%d added, %d failed\n", tally.done, tally.failed);
  rkv_async_free(client);
  return tally.failed == 0 && tally.done == 100 ? 0 : 1;
}
