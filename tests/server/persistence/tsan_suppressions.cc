// What ThreadSanitizer must not complain of: Debian's RocksDB is built without it. A thread that
// waits to write stands on its own stack in RocksDB's list of writers (WriteThread), is woken by
// atomics that the sanitizer does not see, and uses that stack for other things afterwards.

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's name
extern "C" const char* __tsan_default_suppressions();

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" const char* __tsan_default_suppressions() {
  return "race:rocksdb::WriteThread::\n";
}
