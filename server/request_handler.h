// From the bytes of a request to what has to be answered: decodes, asks the store, words errors.
// Knows no network, so that it can be tested with bytes alone.
//
// Thread safety: one per worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/wire.h"
#include "server/backups.h"
#include "server/persistence/commit_log.h"
#include "server/scans.h"
#include "server/store.h"
#include "server/sweeper.h"

namespace rkv::server {

class RequestHandler {
 public:
  enum class Next : std::uint8_t {
    kReply,        // with `response`
    kAwaitMark,    // with `response`, as soon as the mark of `level` has reached `through`
    kAwaitBackup,  // with backed_up(), as soon as `backup` is done
    kAwaitSweep,   // with after_sweep(), as soon as the sweep of number `through` is over
    kAwaitPage,    // with scanned(), as soon as `page` is done
    kAwaitLoad,    // handle() it again when the record of `key` is in memory
    kReadRequest,  // the request itself, from where `message` says; then handle() that one
    kFetch,        // `large.value` first, from where `source` says; then finish() or cancel()
    kDisconnect,   // not even a header: there is nobody to answer to
  };
  struct Answer {
    Next next = Next::kReply;
    Response response = {};                  // spans are valid until the next handle()
    Durability level = Durability::kMemory;  // kAwaitMark: kWal or kSync
    std::uint64_t through = 0;
    bool malformed = false;
    MessageSource message = {};
    ValueSource source = {};
    LargePut large = {};
    std::shared_ptr<const Backup> backup = {};
    std::shared_ptr<const ScanPage> page = {};
    Bytes key = {};  // kAwaitLoad; in the message
  };

  // `stats` makes the JSON of a stats request; `durability` is that of writes that name none;
  // `network`: whose cells the clients can reach (Store::add_cells). References must outlive the
  // handler. `backups`, `scans`: nullptr where there are none; `sweeper`: nullptr where no counter
  // is ever one-sided.
  RequestHandler(Store& store, const CommitLog& log, std::uint32_t boot, Durability durability,
                 std::function<std::string()> stats, std::uint32_t network = kNoNetwork,
                 Backups* backups = nullptr, Sweeper* sweeper = nullptr, Scans* scans = nullptr);
  static constexpr std::uint32_t kNoNetwork = ~std::uint32_t{0};

  // What the clock says at the beginning of the turn: answers tell it, and it must not be later
  // than they are sent. The times until which clients wait are told relative to it.
  void set_time(Nanos now) { now_ = now; }

  // `message` comes from a peer: anything at all. No allocation but for stats, backups
  // and pages of scans. `look`: what a load for it has found.
  Answer handle(Bytes message, DiskLook look = {});
  // The answer to a request that awaited a load in vain.
  static Response not_loaded(Bytes message, const Error& error);

  // A value that was fetched, with the digest of what came; `message` is its request once more.
  Answer finish(Bytes message, LargePut large, std::uint64_t digest);
  // One that did not come.
  void cancel(LargePut large) { store_.cancel_large(std::move(large)); }
  std::uint64_t epoch() const { return store_.epoch(); }
  // Keys that clients have said they found by READ. Any thread.
  std::uint64_t told_reads() const { return told_reads_.load(std::memory_order_relaxed); }

  // Whether an answer that awaits a mark may be given.
  bool is_reached(Durability level, std::uint64_t through) const {
    return through <= (level == Durability::kWal ? log_.wal_mark() : log_.sync_mark());
  }
  // The answer to a flush, or to a write that waited, when the disk has failed meanwhile. The write
  // has been made: readers may have seen it.
  Response disk_failed(const Response& awaited) const;
  // A flush or a backup goes on: what to do next. `awaited` is the answer that said kAwaitSweep,
  // `value` its value.
  Answer after_sweep(const Response& awaited, Bytes value, const Status& swept);
  // The answer to a request for a backup that is done.
  static Response backed_up(const Response& awaited, const Backup& backup);
  // The answer to a scan whose page is done; its value lies in the page.
  Response scanned(const Response& awaited, const ScanPage& page) const;
  // With the marks and the time, as every answer carries them.
  Response marked(const Response& response) const;

 private:
  Answer serve(const Request& request);
  Answer get(const Request& request);
  void touch(Bytes told);
  Answer put(const Request& request);
  Answer put_large(const Request& request);
  Answer read_request(const Request& request);
  Answer remove(const Request& request);
  Answer count(const Request& request);
  Answer open_counter(const Request& request);
  Nanos begin_by(const Request& request) const;
  PutOptions options_of(const Request& request) const;
  Answer flush(const Request& request);
  Answer stats(const Request& request);
  Answer backup(const Request& request);
  Answer sweep_first(const Request& request);
  Answer flush_swept(std::uint64_t sequence) const;
  Answer backup_swept(std::uint64_t sequence, Bytes name);
  Answer scan(const Request& request);
  Durability level_of(const Request& request) const;
  // Holds the answer to a write back until the write is as safe as it was asked to be.
  Answer when_safe(const Request& request, Answer answer) const;

  Store& store_;
  const CommitLog& log_;
  const std::uint32_t boot_;
  const Durability durability_;
  const std::function<std::string()> make_stats_;
  const std::uint32_t network_;
  Backups* const backups_;
  Sweeper* const sweeper_;
  Scans* const scans_;
  Nanos now_ = 0;
  DiskLook look_;                 // of the request that is being handled
  std::vector<std::byte> value_;  // of a get: kMaxInlineBytes
  std::string stats_text_;
  std::atomic<std::uint64_t> told_reads_{0};  // one writer
};

}  // namespace rkv::server
