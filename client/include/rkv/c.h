/* rkv in C: a client that any number of threads use at once, and an asynchronous one.
 *
 *   rkv_options* options = rkv_options_new();
 *   rkv_options_set(options, "server", "10.0.0.1:7471", NULL);
 *   rkv_client* client = NULL;
 *   rkv_error error;
 *   if (rkv_connect(options, &client, &error) != RKV_OK) { puts(error.text); ... }
 *   rkv_put(client, "name", 4, "value", 5, NULL, NULL, &error);
 *   rkv_value* value = NULL;
 *   if (rkv_get(client, "name", 4, NULL, &value, &error) == RKV_OK) {
 *     fwrite(rkv_value_data(value), 1, rkv_value_size(value), stdout);
 *     rkv_value_free(value);
 *   }
 *   rkv_free(client);
 *   rkv_options_free(options);
 *
 * It is the C++ library (rkv/shared_client.h, rkv/async_client.h) with the same promises, costs,
 * errors and deadlines: rkv/operations.h describes each operation. What is not here: puts from
 * registered memory, an asynchronous client of several servers, and another list of servers while a
 * client is connected.
 *
 * Results: each function that can fail returns RKV_OK, which is 0, or a code, and fills `error`,
 * which may be NULL. What it was to return is then untouched, unless said otherwise.
 * Keys and values: any bytes, with their length; a key has 1 to 1024, a value up to 16 MiB. NULL is
 * accepted for a length of 0. The library copies nothing that it does not have to keep, and keeps
 * nothing after a call has returned, apart from asynchronous calls.
 * Options of operations: NULL is the defaults. Others begin as RKV_..._OPTIONS_INIT, which has the
 * size of the struct: so programs built with an older header run with a newer library of the same
 * file name (librkv.so.0.1). What an operation does not have must not be set.
 * Threads: an rkv_client, any; an rkv_async, as stated there. Other objects, one at a time.
 * A thread must not be cancelled (pthread_cancel) in a call.
 * Fork: a child makes clients of its own. Calls of a client of its parent return
 * RKV_INVALID_ARGUMENT there, and rkv_free() and rkv_async_free() only leave its memory unused.
 * Wrong arguments (NULL where something is needed, a client that is closed) are
 * RKV_INVALID_ARGUMENT. Memory that was freed, or that is too small, cannot be noticed.
 *
 * The symbols have a version of their own (RKV_C_1): functions are added, and what is there stays
 * as it is.
 */
#ifndef RKV_C_H
#define RKV_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RKV_C_EXPORT __attribute__((visibility("default")))
#else
#define RKV_C_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. rkv_c_version() is that of the library, which must not be lower. */
#define RKV_C_VERSION 6
RKV_C_EXPORT uint32_t rkv_c_version(void);

/* NOLINTBEGIN(readability-identifier-naming): names as C has them. */
/* ---- errors */

/* The codes of rkv/result.h, grouped by what the caller can do. */
enum {
  RKV_OK = 0,
  /* The operation was carried out; this is its answer. */
  RKV_NOT_FOUND = 1,
  RKV_INVALID_ARGUMENT = 2,
  RKV_TOO_LARGE = 3,
  RKV_CONFLICT = 4,      /* a condition did not hold */
  RKV_WRONG_TYPE = 5,    /* a counter where a value is needed, or the reverse */
  RKV_OUT_OF_RANGE = 6,  /* a counter would pass its limits */
  RKV_VALUE_CHANGED = 7, /* the value's memory was written while it was sent */
  RKV_CANCELLED = 8,
  /* Try again later. */
  RKV_OUT_OF_MEMORY = 20,
  RKV_BUSY = 21,
  /* The connection is lost, or the server restarted. */
  RKV_DISCONNECTED = 40,
  RKV_STALE = 41,
  RKV_NOT_PRIMARY = 42,
  /* Only a person or another configuration can help. */
  RKV_TIMEOUT = 60,
  RKV_UNREACHABLE = 61,
  RKV_VERSION_MISMATCH = 62,
  RKV_PERMISSION = 63,
  RKV_NO_DEVICE = 64,
  RKV_UNSUPPORTED = 65,
  RKV_IO = 66,
  RKV_CORRUPT = 67,
  RKV_REJECTED = 68,
  RKV_INTERNAL = 69,
  RKV_UNAUTHENTICATED = 70
};
typedef int rkv_status;

typedef struct rkv_error {
  rkv_status code;
  int may_have_happened; /* 1: the call failed, and its write may have taken effect */
  int sys_errno;         /* 0: no system call was involved */
  char text[244];        /* a sentence, ended by a zero; cut if it is longer */
} rkv_error;

/* "not found"; never NULL. */
RKV_C_EXPORT const char* rkv_status_text(rkv_status status);

/* ---- the log
 *
 * The library logs only what no result can report, such as that a server sent garbage and was left.
 * By default each line goes to stderr, as "warning: ...". */

enum {
  RKV_LOG_DEBUG = 0,
  RKV_LOG_INFO = 1, /* the least that is logged, unless rkv_set_log_level() changes it */
  RKV_LOG_WARNING = 2,
  RKV_LOG_ERROR = 3,
  RKV_LOG_OFF = 4
};
typedef void (*rkv_log_callback)(void* context, int level, const char* text);

/* Gives each line of this process to `callback`, whatever client it is of; NULL: to stderr again.
 * `text` is a sentence without a line's end, ended by a zero, and valid during the call. Any thread
 * may call these functions at any time, and may be in the callback, but one at a time. When
 * rkv_set_log() has returned, the callback of before is not called any more. The callback must not
 * call this library, nor wait for a thread that uses it. Since version 3 of this header. */
RKV_C_EXPORT rkv_status rkv_set_log(rkv_log_callback callback, void* context, rkv_error* error);
/* Drops lines below `least`; RKV_LOG_OFF drops all. */
RKV_C_EXPORT rkv_status rkv_set_log_level(int least, rkv_error* error);

/* ---- options of a client */

typedef struct rkv_options rkv_options;
RKV_C_EXPORT rkv_options* rkv_options_new(void);          /* NULL: no memory */
RKV_C_EXPORT void rkv_options_free(rkv_options* options); /* NULL is allowed */
/* Sets one by its name. rkv/options.h describes them; durations have units ("250ms", "5s"), sizes
 * may have ("64MiB"):
 *   server, name, user, secret, timeout, cache, reads-in-flight, requests-in-flight, large,
 *   polling (adaptive, busy, event), transport (auto, verbs, shm, tcp), device, port, gid-index,
 *   first-backoff, longest-backoff, connect-timeout, repeat-connect (true, false); and of an
 *   rkv_client connections (1 to 64), and servers instead of server.
 * servers is a list, "10.0.0.1:7471,10.0.0.2:7471": these servers are one store, and each key is
 * kept on one of them. All clients of a store need the same list, in any order. An entry may have a
 * name and a weight, [NAME=]HOST:PORT[*WEIGHT]; rkv/shard_map.h describes them. Since version 4 of
 * this header.
 * RKV_INVALID_ARGUMENT: no such option, or not a value of it. */
RKV_C_EXPORT rkv_status rkv_options_set(rkv_options* options, const char* name, const char* value,
                                        rkv_error* error);

/* ---- a client that any number of threads use at once */

typedef struct rkv_client rkv_client;

/* Blocks until there is a connection, or the option timeout. `options` may be freed afterwards;
 * NULL: the defaults.
 * With the option servers the client is an rkv::Cluster (rkv/cluster.h has the promises): a server
 * that is down fails the operations on its own keys, and no others. The calls of threads follow one
 * another; one that waits for its turn until its deadline returns RKV_TIMEOUT. Threads that are to
 * work at the same time need a client each. */
RKV_C_EXPORT rkv_status rkv_connect(const rkv_options* options, rkv_client** client,
                                    rkv_error* error);
/* Ends the connections, when all threads have left their calls. Calls that begin later return
 * RKV_INVALID_ARGUMENT. */
RKV_C_EXPORT rkv_status rkv_close(rkv_client* client, rkv_error* error);
/* As rkv_close(), and frees the client: no thread may use it any more. NULL is allowed. */
RKV_C_EXPORT void rkv_free(rkv_client* client);
/* The transport, and why it was chosen: one line, valid until rkv_close(). NULL: closed. */
RKV_C_EXPORT const char* rkv_describe(rkv_client* client);

typedef struct rkv_slice {
  const void* data;
  size_t size;
} rkv_slice;

/* How durable a write is when its call returns, or a value that is returned. */
enum {
  RKV_DEFAULT = 0, /* the server's default */
  RKV_MEMORY = 1,
  RKV_WAL = 2,
  RKV_SYNC = 3
};

typedef struct rkv_get_options {
  size_t struct_size;
  uint32_t timeout_ms; /* 0: the client's */
  uint32_t at_least;   /* durability of the value; RKV_DEFAULT: any */
} rkv_get_options;
#define RKV_GET_OPTIONS_INIT {sizeof(rkv_get_options), 0, 0}

typedef struct rkv_write_options {
  size_t struct_size;
  uint32_t timeout_ms; /* 0: the client's */
  uint32_t durability;
  uint64_t ttl_ms;        /* of a put or touch: time to live; 0: none */
  uint64_t expires_at_ms; /* of a put or touch: instead, Unix milliseconds by the server's clock */
  int if_absent;          /* of a put: 1: only if the key is absent, else RKV_CONFLICT */
  int has_if_version;     /* of a put, touch or delete: 1: only if the key has if_version */
  uint64_t if_version;
} rkv_write_options;
#define RKV_WRITE_OPTIONS_INIT {sizeof(rkv_write_options), 0, 0, 0, 0, 0, 0, 0}

/* A value that was read. It is the caller's, and independent of the client. The functions return 0
 * or NULL of a NULL value. */
typedef struct rkv_value rkv_value;
RKV_C_EXPORT const void* rkv_value_data(const rkv_value* value); /* a zero follows the bytes */
RKV_C_EXPORT size_t rkv_value_size(const rkv_value* value);
RKV_C_EXPORT uint64_t rkv_value_version(const rkv_value* value);
RKV_C_EXPORT uint64_t rkv_value_expires_at_ms(const rkv_value* value); /* 0: never */
RKV_C_EXPORT int rkv_value_is_counter(const rkv_value* value);
RKV_C_EXPORT int rkv_value_durability(const rkv_value* value);
RKV_C_EXPORT void rkv_value_free(rkv_value* value); /* NULL is allowed */

/* Each blocks until it is done or its deadline passes. `version` and `number` may be NULL. */
RKV_C_EXPORT rkv_status rkv_get(rkv_client* client, const void* key, size_t key_size,
                                const rkv_get_options* options, rkv_value** value,
                                rkv_error* error);
/* Copies the value to `buffer`. `size`, which may be NULL, becomes its length. RKV_TOO_LARGE:
 * nothing is copied, and if it is the value that does not fit, `size` is its length too.
 * RKV_INVALID_ARGUMENT: the key lies in `buffer`. Threads that call this at the same time need
 * buffers that do not overlap: nobody notices, and their content is undefined. */
RKV_C_EXPORT rkv_status rkv_get_into(rkv_client* client, const void* key, size_t key_size,
                                     void* buffer, size_t capacity, const rkv_get_options* options,
                                     size_t* size, uint64_t* version, rkv_error* error);
/* Registered memory, zeroed and page-aligned: rkv_get_into() of a value longer than 128 KiB READs
 * straight into it, at any place. RKV_UNSUPPORTED: the client has the option servers. Such a call
 * may end later than its deadline: when its READs have landed, or nothing has come over the
 * connection for 2 s. After an error the memory's content is undefined. The memory may outlive the
 * client. */
typedef struct rkv_buffer rkv_buffer;
RKV_C_EXPORT rkv_status rkv_buffer_new(rkv_client* client, size_t bytes, rkv_buffer** buffer,
                                       rkv_error* error);
RKV_C_EXPORT void* rkv_buffer_data(rkv_buffer* buffer);        /* NULL of NULL */
RKV_C_EXPORT size_t rkv_buffer_size(const rkv_buffer* buffer); /* 0 of NULL */
/* REQUIRES that no call uses it. NULL is allowed. */
RKV_C_EXPORT void rkv_buffer_free(rkv_buffer* buffer);
RKV_C_EXPORT rkv_status rkv_put(rkv_client* client, const void* key, size_t key_size,
                                const void* value, size_t value_size,
                                const rkv_write_options* options, uint64_t* version,
                                rkv_error* error);
/* Sets the time to live of a key to ttl_ms or expires_at_ms of the options; without either the key
 * does not expire any more. The value stays and is not sent. RKV_NOT_FOUND. Since version 6 of this
 * header. */
RKV_C_EXPORT rkv_status rkv_touch(rkv_client* client, const void* key, size_t key_size,
                                  const rkv_write_options* options, uint64_t* version,
                                  rkv_error* error);
RKV_C_EXPORT rkv_status rkv_delete(rkv_client* client, const void* key, size_t key_size,
                                   const rkv_write_options* options, uint64_t* version,
                                   rkv_error* error);
RKV_C_EXPORT rkv_status rkv_incr(rkv_client* client, const void* key, size_t key_size, int64_t by,
                                 const rkv_write_options* options, int64_t* number,
                                 rkv_error* error);
/* `done` becomes 1 if the number was `expected` and is `desired` now; `number` is the present one.
 */
RKV_C_EXPORT rkv_status rkv_counter_cas(rkv_client* client, const void* key, size_t key_size,
                                        int64_t expected, int64_t desired,
                                        const rkv_write_options* options, int* done,
                                        int64_t* number, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_get_counter(rkv_client* client, const void* key, size_t key_size,
                                        const rkv_get_options* options, int64_t* number,
                                        rkv_error* error);

/* A counter that is changed and read by one atomic of the network, which the server's processor has
 * no part in. It promises less than the counters above (OneSidedCounter in rkv/values.h): a crash
 * of the server may lose some 100 ms of changes, and a change whose connection is lost is not
 * repeated. The object belongs to one thread at a time, and may be used with any client of the same
 * store. The calls of all threads that use such counters follow one another. Since version 4 of
 * this header.
 *
 * Opening costs one request. `create` 1: an absent counter is created with 0; 0: RKV_NOT_FOUND.
 * RKV_WRONG_TYPE: the key holds a plain value. `timeout_ms` 0: the client's. */
typedef struct rkv_one_sided rkv_one_sided;
RKV_C_EXPORT rkv_status rkv_one_sided_open(rkv_client* client, const void* key, size_t key_size,
                                           int create, uint32_t timeout_ms, rkv_one_sided** counter,
                                           rkv_error* error);
RKV_C_EXPORT void rkv_one_sided_free(rkv_one_sided* counter); /* NULL is allowed */
/* 1: the last operation used an atomic, or the next one will. 0: the server has no cell to give, or
 * the device has no atomics; operations are requests then. 0 of NULL. */
RKV_C_EXPORT int rkv_one_sided_has_cell(const rkv_one_sided* counter);
/* Adds `by`, as rkv_incr(). With a durability above RKV_MEMORY it is a request. */
RKV_C_EXPORT rkv_status rkv_one_sided_incr(rkv_client* client, rkv_one_sided* counter, int64_t by,
                                           const rkv_write_options* options, int64_t* number,
                                           rkv_error* error);
/* As rkv_counter_cas(). */
RKV_C_EXPORT rkv_status rkv_one_sided_cas(rkv_client* client, rkv_one_sided* counter,
                                          int64_t expected, int64_t desired,
                                          const rkv_write_options* options, int* done,
                                          int64_t* number, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_one_sided_get(rkv_client* client, rkv_one_sided* counter,
                                          uint32_t timeout_ms, int64_t* number, rkv_error* error);

/* Many keys at once, pipelined; the timeout is that of the whole call. The result of each is in
 * statuses[i], and values[i], which is NULL unless that is RKV_OK, or versions[i], which may be
 * NULL as a whole. Returns RKV_OK if all keys were attempted, also if some or all of them failed.
 * `error` is then that of the first that failed otherwise than by RKV_NOT_FOUND, with the code
 * RKV_OK if none has; its may_have_happened is 1 if any of those that failed may have happened.
 * Many puts have no conditions, and before version 3 of this header no ttl_ms. */
RKV_C_EXPORT rkv_status rkv_multi_get(rkv_client* client, const rkv_slice* keys, size_t count,
                                      const rkv_get_options* options, rkv_value** values,
                                      rkv_status* statuses, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_multi_put(rkv_client* client, const rkv_slice* keys,
                                      const rkv_slice* values, size_t count,
                                      const rkv_write_options* options, uint64_t* versions,
                                      rkv_status* statuses, rkv_error* error);
/* As rkv_multi_put(). may_have_happened[i] becomes 1 if the put of keys[i] has failed and may have
 * taken effect, else 0; NULL is allowed. Since version 5 of this header. */
RKV_C_EXPORT rkv_status rkv_multi_put_each(rkv_client* client, const rkv_slice* keys,
                                           const rkv_slice* values, size_t count,
                                           const rkv_write_options* options, uint64_t* versions,
                                           rkv_status* statuses, unsigned char* may_have_happened,
                                           rkv_error* error);

/* A page of keys in byte order. */
typedef struct rkv_scan_options {
  size_t struct_size;
  uint32_t timeout_ms; /* 0: the client's */
  uint32_t limit;      /* of entries in the page; 0: none */
  rkv_slice prefix;
  rkv_slice start; /* keys at or above it */
  rkv_slice end;   /* keys below it; empty: no limit */
  rkv_slice token; /* of the page before; empty: from the beginning */
  int reverse;     /* 1: from the last key to the first */
  int keys_only;   /* 1: no values */
} rkv_scan_options;
#define RKV_SCAN_OPTIONS_INIT \
  {sizeof(rkv_scan_options), 0, 0, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, 0, 0}
typedef struct rkv_entry {
  rkv_slice key;
  rkv_slice value; /* empty with keys_only */
  uint64_t version;
  uint64_t expires_at_ms;
  int is_counter;
} rkv_entry;
typedef struct rkv_page rkv_page;
RKV_C_EXPORT rkv_status rkv_scan(rkv_client* client, const rkv_scan_options* options,
                                 rkv_page** page, rkv_error* error);
RKV_C_EXPORT size_t rkv_page_count(const rkv_page* page);
/* Valid until rkv_page_free(). RKV_INVALID_ARGUMENT: the page has fewer entries. */
RKV_C_EXPORT rkv_status rkv_page_entry(const rkv_page* page, size_t index, rkv_entry* entry);
/* For the next page; empty: there is none. An empty page may have a token. */
RKV_C_EXPORT rkv_slice rkv_page_token(const rkv_page* page);
RKV_C_EXPORT void rkv_page_free(rkv_page* page); /* NULL is allowed */

/* As those of rkv/shared_client.h. `timeout_ms` 0: the client's. With the option servers each of
 * them is asked, and the first error is returned, which names its server. */
RKV_C_EXPORT rkv_status rkv_ping(rkv_client* client, uint32_t timeout_ms, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_flush(rkv_client* client, uint32_t timeout_ms, rkv_error* error);
/* A JSON object. With the option servers: an object of such objects, by HOST:PORT. */
RKV_C_EXPORT rkv_status rkv_server_stats(rkv_client* client, uint32_t timeout_ms, rkv_value** json,
                                         rkv_error* error);

/* ---- an asynchronous client (rkv/async_client.h)
 *
 * Any thread submits and stops operations; one at a time drives (poll, arm, wait). Callbacks run on
 * the thread that drives, and may submit. They may neither wait for nor close the client they run
 * in. A key and a value must stay valid and unchanged until the callback is called. */

typedef struct rkv_async rkv_async;
typedef struct rkv_result {
  rkv_status status;
  const rkv_error* error; /* NULL: RKV_OK */
  rkv_slice value;        /* of a get, during the callback */
  uint64_t version;
  int64_t number; /* of a counter after rkv_async_incr() */
} rkv_result;
typedef void (*rkv_callback)(void* context, const rkv_result* result);

/* Withdraws operations: those that were given it end with RKV_CANCELLED. Any thread. */
typedef struct rkv_stop rkv_stop;
RKV_C_EXPORT rkv_stop* rkv_stop_new(void); /* NULL: no memory */
RKV_C_EXPORT void rkv_stop_request(rkv_stop* stop);
RKV_C_EXPORT void rkv_stop_free(rkv_stop* stop); /* at any time; NULL is allowed */

/* As rkv_connect(). RKV_INVALID_ARGUMENT: the option servers is set. */
RKV_C_EXPORT rkv_status rkv_async_connect(const rkv_options* options, rkv_async** client,
                                          rkv_error* error);
/* Ends all operations (RKV_DISCONNECTED). Calls that begin later return RKV_INVALID_ARGUMENT, those
 * of the callbacks that this function calls included. */
RKV_C_EXPORT rkv_status rkv_async_close(rkv_async* client, rkv_error* error);
/* As rkv_async_close(), and frees the client. REQUIRES that no thread uses it, and no callback of
 * it runs. NULL is allowed. */
RKV_C_EXPORT void rkv_async_free(rkv_async* client);

/* Each submits one operation, which ends by one call of `callback`, unless the function fails:
 * RKV_INVALID_ARGUMENT, RKV_OUT_OF_MEMORY. `stop` may be NULL. */
RKV_C_EXPORT rkv_status rkv_async_get(rkv_async* client, const void* key, size_t key_size,
                                      const rkv_get_options* options, rkv_stop* stop,
                                      rkv_callback callback, void* context, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_async_put(rkv_async* client, const void* key, size_t key_size,
                                      const void* value, size_t value_size,
                                      const rkv_write_options* options, rkv_stop* stop,
                                      rkv_callback callback, void* context, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_async_delete(rkv_async* client, const void* key, size_t key_size,
                                         const rkv_write_options* options, rkv_stop* stop,
                                         rkv_callback callback, void* context, rkv_error* error);
RKV_C_EXPORT rkv_status rkv_async_incr(rkv_async* client, const void* key, size_t key_size,
                                       int64_t by, const rkv_write_options* options, rkv_stop* stop,
                                       rkv_callback callback, void* context, rkv_error* error);

/* The event loop: poll, and if arm returns 1, wait until the descriptor is readable. They return 0,
 * and the descriptor -1, of a client that is closed. */
RKV_C_EXPORT size_t rkv_async_poll(rkv_async* client);
RKV_C_EXPORT int rkv_async_arm(rkv_async* client);
RKV_C_EXPORT int rkv_async_descriptor(rkv_async* client);
RKV_C_EXPORT size_t rkv_async_in_flight(rkv_async* client);
/* Polls until an operation has ended, nothing is in flight, or `timeout_ms`, if it is not 0, has
 * passed. `ended`, which may be NULL, becomes the number of operations that have. */
RKV_C_EXPORT rkv_status rkv_async_wait(rkv_async* client, uint32_t timeout_ms, size_t* ended,
                                       rkv_error* error);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif
