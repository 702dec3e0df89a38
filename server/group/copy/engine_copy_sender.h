// EngineCopySender: sends copies of this replica's database to replicas that ask for one, one copy
// at a time. Meanwhile it sends CopyWait to the others.
//
// A thread of its own makes a checkpoint in `sending` of the data directory and reads its files, as
// both wait for the disk. Checkpoints are hard links where the file system has them, so they cost
// little space. But the space of files that the database deletes meanwhile is free only once the
// copy is over. The sender needs kWindowBytes of memory: it reads on only as the connection takes
// the bytes.
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
#include "server/group/connection/replica_connection.h"
#include "server/group/rules/messages.h"

namespace asio {
class io_context;
}

namespace rkv::server {

class EngineCopySender {
 public:
  static constexpr std::size_t kWindowBytes = std::size_t{4} << 20;
  // A receiver that takes nothing for this long is given up. CopyWait is sent more often than that.
  static constexpr std::chrono::seconds kSilence{60};
  static constexpr std::chrono::seconds kWaitInterval{5};

  // Like StorageEngine::checkpoint(): makes the directory `target` with the files of a database.
  using Checkpoint = std::function<Status(const std::string& target)>;
  // `problem`: empty if everything was sent, else a sentence that says why not.
  using Done = std::function<void(const std::string& replica, const std::string& problem)>;
  struct Progress {
    std::string replica;  // gets the copy; empty: none
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
  // Ends all copies, for a replica that is not the primary any more. Does not block.
  void end_all(const std::string& why);
  // Whether a copy for this replica is under way or waits.
  bool sends_to(const std::string& replica) const;
  Progress progress() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
