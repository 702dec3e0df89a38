/* The client in C: puts a value, gets it, and puts the next one on the condition that nobody has
 * changed it in between.
 *
 *   c_quick_start [HOST:PORT]
 */
#include <rkv/c.h>
#include <stdio.h>

/* Says what failed. Returns main()'s result. */
static int complain(const char* what, const rkv_error* error) {
  fprintf(stderr, "%s: %s\n", what, error->text);
  return 1;
}

static int run(rkv_client* client) {
  rkv_error error;
  if (rkv_put(client, "greeting", 8, "hello", 5, NULL, NULL, &error) != RKV_OK)
    return complain("put", &error);
  rkv_value* value = NULL;
  if (rkv_get(client, "greeting", 8, NULL, &value, &error) != RKV_OK) return complain("get", &error);
  printf("greeting: %.*s\n", (int)rkv_value_size(value), (const char*)rkv_value_data(value));

  rkv_write_options unchanged = RKV_WRITE_OPTIONS_INIT;
  unchanged.has_if_version = 1;
  unchanged.if_version = rkv_value_version(value);
  rkv_value_free(value);
  if (rkv_put(client, "greeting", 8, "hi", 2, &unchanged, NULL, &error) != RKV_OK)
    return complain("put", &error);
  const rkv_status again = rkv_put(client, "greeting", 8, "hey", 3, &unchanged, NULL, &error);
  printf("with the version of before: %s\n", rkv_status_text(again));
  return again == RKV_CONFLICT ? 0 : 1;
}

int main(int argc, char** argv) {
  rkv_error error;
  rkv_options* options = rkv_options_new();
  if (options == NULL) return 1;
  if (argc > 1 && rkv_options_set(options, "server", argv[1], &error) != RKV_OK) {
    rkv_options_free(options);
    return complain("options", &error);
  }
  rkv_client* client = NULL;
  rkv_options_set(options, "repeat-connect", "false", NULL); /* one attempt */
  const rkv_status connected = rkv_connect(options, &client, &error);
  rkv_options_free(options);
  if (connected != RKV_OK) return complain("connect", &error);
  const int status = run(client);
  rkv_free(client);
  return status;
}
