// Reports that the sanitizers must suppress: Debian's RocksDB is built without sanitizers.

// A thread that waits to write stands on its own stack in RocksDB's list of writers (WriteThread),
// is woken by atomics that ThreadSanitizer does not see, and uses that stack for other things
// afterwards.

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's name
extern "C" const char* __tsan_default_suppressions();

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" const char* __tsan_default_suppressions() {
  return "race:rocksdb::WriteThread::\n";
}

// A memtable that RocksDB makes when a write fills the last one is lost at times, if the disk fails
// in that moment. Seen once in power_loss_test: 4400 bytes, all of them allocated below this
// function and referred to by one another only.

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" const char* __lsan_default_suppressions();

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" const char* __lsan_default_suppressions() {
  return "leak:rocksdb::DBImpl::SwitchMemtable\n";
}
