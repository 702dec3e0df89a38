/* A program of somebody else in C11: puts a value and gets it back, and holds the layout of what it
 * was compiled with. Usage: plain HOST:PORT */
#include <rkv/c.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* On machines of 64 bits these never change: programs that exist were compiled with them. */
_Static_assert(sizeof(void*) != 8 || sizeof(rkv_error) == 256, "rkv_error");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_error, text) == 12, "rkv_error.text");
_Static_assert(sizeof(void*) != 8 || sizeof(rkv_slice) == 16, "rkv_slice");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_get_options, at_least) == 12, "at_least");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_write_options, durability) == 12, "durability");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_write_options, ttl_ms) == 16, "ttl_ms");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_write_options, expires_at_ms) == 24, "expires");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_write_options, if_absent) == 32, "if_absent");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_write_options, if_version) == 40, "if_version");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_scan_options, prefix) == 16, "prefix");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_scan_options, keys_only) == 84, "keys_only");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_entry, is_counter) == 48, "rkv_entry");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_result, value) == 16, "rkv_result.value");
_Static_assert(sizeof(void*) != 8 || offsetof(rkv_result, number) == 40, "rkv_result.number");
_Static_assert(sizeof(void*) != 8 || sizeof(rkv_entry) == 56, "rkv_entry, which callers hold");
_Static_assert(sizeof(void*) != 8 || sizeof(rkv_result) == 48, "rkv_result");
_Static_assert(RKV_NOT_FOUND == 1 && RKV_CANCELLED == 8 && RKV_UNAUTHENTICATED == 70, "codes");

int main(int argc, char** argv) {
  rkv_error error;
  rkv_options* options = rkv_options_new();
  if (argc != 2 || options == NULL || rkv_c_version() < RKV_C_VERSION) return 2;
  rkv_options_set(options, "server", argv[1], NULL);
  rkv_options_set(options, "transport", "shm", NULL);
  rkv_client* client = NULL;
  if (rkv_connect(options, &client, &error) != RKV_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  rkv_options_free(options);
  rkv_value* value = NULL;
  if (rkv_put(client, "plain", 5, "C", 1, NULL, NULL, &error) != RKV_OK ||
      rkv_get(client, "plain", 5, NULL, &value, &error) != RKV_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  rkv_one_sided* counter = NULL;
  int64_t before = 0;
  int64_t number = 0;
  if (rkv_one_sided_open(client, "counter", 7, 1, 0, &counter, &error) != RKV_OK ||
      rkv_one_sided_get(client, counter, 0, &before, &error) != RKV_OK ||
      rkv_one_sided_incr(client, counter, 3, NULL, &number, &error) != RKV_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  rkv_one_sided_free(counter);
  const int is_same =
      rkv_value_size(value) == 1 && strcmp(rkv_value_data(value), "C") == 0 && number == before + 3;
  rkv_value_free(value);
  rkv_free(client);
  puts(is_same ? "got what was put" : "got something else");
  return is_same ? 0 : 1;
}
