// EngineCopyReceiver: fetches a copy of the primary's database into a data directory. The database
// there stays open and unchanged; install_copy() replaces it afterwards (copy_directory.h).
//
// It works on a thread of its own, since it waits for the disk. It needs the memory of some pieces
// of 1 MiB: it reads nothing from the network while it writes.
//
// Thread safety: the thread of the io_context, which must outlive the receiver.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/group/connection/group_secret.h"
#include "server/group/rules/messages.h"

namespace asio {
class io_context;
}

namespace rkv::server {

class EngineCopyReceiver {
 public:
  // Limit of the primary's silence. The primary sends messages all the time, even while another
  // replica's copy comes first.
  static constexpr std::chrono::seconds kSilence{60};
  // `problem`: empty if the copy is there, else a sentence that says why not. In that case nothing
  // of the copy is left.
  using Done = std::function<void(std::string problem)>;
  struct Progress {
    std::uint64_t bytes = 0;
    std::uint64_t total_bytes = 0;  // 0: not known yet
  };

  // Begins to receive. `done` is called once, by a handler of `io`.
  EngineCopyReceiver(asio::io_context& io, std::string directory, const std::string& address,
                     const GroupSecret& secret, CopyRequest request, Done done,
                     std::chrono::milliseconds silence = kSilence);
  // Ends the copy under way; blocks until the disk has finished a write or a sync. After that
  // `done` is not called any more. May run in `done`.
  ~EngineCopyReceiver();
  EngineCopyReceiver(const EngineCopyReceiver&) = delete;
  EngineCopyReceiver& operator=(const EngineCopyReceiver&) = delete;

  Progress progress() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
