# The commit log is a library of its own: the store appends to it and needs no disk for that.
rkv_library(rkv_commit_log
  SOURCES persistence/commit_log.cc persistence/disk_state.cc
  PUBLIC rkv_common)

# RocksDB is named in database.*, log_chain.*, log_files.*, log_reader.*, engine*, and inspection.cc alone.
find_package(RocksDB CONFIG REQUIRED GLOBAL)  # GLOBAL: tests and programs link it too
rkv_library(rkv_server_persistence
  SOURCES persistence/applier.cc persistence/database.cc persistence/engine.cc persistence/engine_recovery.cc persistence/engine_start.cc persistence/inspection.cc persistence/last_writes.cc persistence/log_chain.cc persistence/log_files.cc persistence/log_reader.cc persistence/log_stamp.cc
  PUBLIC rkv_commit_log
  PRIVATE RocksDB::rocksdb-shared)
