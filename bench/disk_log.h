// What synced writes of many clients cost in a log on disk: RocksDB's, and logs of our own that are
// not built yet. Threads stand for the clients: each appends a record and waits until it is synced.
// A log thread takes all records that wait, writes them and syncs once. In turn with it, one thread
// writes as many bytes over a zeroed file and calls fdatasync.
#pragma once

#include "bench/program.h"

namespace rkv::bench {

// --way rocksdb: a batch into RocksDB with its log, synced. growing: a file that becomes longer
// with each write. zeroed: a file that was written with zeros before; its blocks are written over.
// --under-way: syncs that may be under way at once, each of a thread and a descriptor of its own;
// of RocksDB 1. --gather-us: how long a log thread waits for further records; 1: not at all.
// Returns times in microseconds, and how often the device was flushed for a sync, as its driver
// counts.
json log_groups(const Arguments& given);

}  // namespace rkv::bench
