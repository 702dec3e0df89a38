// EngineCopySender: sends copies of this replica's database to others that ask for one, one copy at
// a time. Others wait, and are sent CopyWait.
//
// A thread of its own makes a checkpoint in `sending` of the data directory and reads its files, as
// both wait for the disk. Checkpoints are hard links where the file system has them, so they cost
// little space; but what the database deletes meanwhile is deleted only once the copy is over. The
// memory that it needs is kWindowBytes: it reads on only as the connection takes what was read.
//
// Thread safety: the thread of the io_context, which must outlive the sender; `checkpoint` is
// called by the other thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rkv/result.h"
#include "server/replication/connection/replica_connection.h"
#include "server/replication/messages.h"

namespace asio {
class io_context;
}

namespace rkv::server {

class EngineCopySender {
 public:
  static constexpr std::size_t kWindowBytes = std::size_t{4} << 20;
  // A receiver that takes nothing for so long is given up. Below it, CopyWait comes often enough.
  static constexpr std::chrono::seconds kSilence{60};
  static constexpr std::chrono::seconds kWaitInterval{5};

  // As StorageEngine::checkpoint(): makes the directory `target` with the files of a database.
  using Checkpoint = std::function<Status(const std::string& target)>;
  // Empty: everything was sent. Else a sentence: why not.
  using Done = std::function<void(const std::string& replica, const std::string& problem)>;
  struct Progress {
    std::string replica;  // that gets the copy; empty: none
    std::uint64_t bytes = 0;
    std::uint64_t total_bytes = 0;  // 0: not known yet
    std::size_t waiting = 0;        // further replicas
  };

  // `directory`: the data directory. `done` is called once for each request that was not ended by
  // the destructor.
  EngineCopySender(asio::io_context& io, std::string directory, Checkpoint checkpoint, Done done,
                   std::chrono::milliseconds silence = kSilence);
  // Ends copies; blocks until a checkpoint or a read that is under way is over
  // (StorageEngine::stop_checkpoints).
  ~EngineCopySender();
  EngineCopySender(const EngineCopySender&) = delete;
  EngineCopySender& operator=(const EngineCopySender&) = delete;

  // Answers a request that was received on this connection. The caller has checked that the replica
  // may have a copy. REQUIRES: the connection is started.
  void send(std::shared_ptr<ReplicaConnection> connection, const CopyRequest& request);
  // Ends all copies, as of a replica that is not the primary any more. Does not block.
  void end_all(const std::string& why);
  // Whether a copy for this replica is under way or waits.
  bool sends_to(const std::string& replica) const;
  Progress progress() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
