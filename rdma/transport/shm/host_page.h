// A page that a server creates and every accepted client maps. It proves to clients, without a
// system call, that the server still lives, and reports that regions were removed.
//
// Shared memory outlives its creator, so a copy out of a dead server's region would always succeed.
// A robust futex is certain to end with a process: it is a word that holds a thread's number, and
// the kernel marks it when that thread exits for any reason.
//
// Invariants
//  HOSTPAGE-1  A client that finds the word held *after* its copy may trust the copy. The server
//      was alive at that moment, and no successor had acknowledged anything. A successor waits
//      until the process has ended, or for a lock that is released with the process's descriptors.
//      Linux releases those (exit_files) after every thread has marked its robust futexes
//      (exit_mm). So "held" comes before "ended", and "ended" before "acknowledged by a successor".
//  HOSTPAGE-2  The holder is a thread that does nothing else, with all signals blocked except those
//      of faults. It ends when the transport ends or when the process does. exec() also marks the
//      word.
//  HOSTPAGE-3  A forked child does not inherit the word: it is marked when the server dies although
//      the child has the page. (A child must not use the transport; descriptors are closed on
//      exec.)
//  HOSTPAGE-4  Only the server can write the page (F_SEAL_FUTURE_WRITE).
//  HOSTPAGE-5  `regions_gone` increases after the news of the removal is in every client's socket
//      (regions.h): a client that sees the new number finds the news.
//  HOSTPAGE-6  The data that the kernel reads when the thread exits lies in shared pages. So a
//      pthread_mutex_t does not work here: its list is in the thread's private memory. The kernel's
//      reaper may take that memory from a process that is killed for lack of memory *before* its
//      threads exit; then nothing would be marked.
#pragma once

#include <memory>

#include "rdma/transport/host_memory.h"

namespace rkv::rdma::shm {

inline constexpr std::size_t kPageBytes = 4096;

// The server's end.
class HostPage {
 public:
  // Starts the thread.
  static Result<std::unique_ptr<HostPage>> create();
  ~HostPage();  // releases the word: for clients, the server is dead
  HostPage(const HostPage&) = delete;
  HostPage& operator=(const HostPage&) = delete;

  int fd() const;
  void count_gone();  // one thread at a time

 private:
  struct Holder;
  explicit HostPage(std::unique_ptr<Holder> holder);
  std::unique_ptr<Holder> holder_;
};

// A client's view.
class HostView {
 public:
  HostView() = default;
  explicit HostView(Mapping page) : page_(std::move(page)) {}
  // Returns whether the server lives. Costs one load. All loads before the call came from a living
  // server (HOSTPAGE-1).
  bool alive_after_copy() const;
  // Increases when a region is removed.
  std::uint64_t regions_gone() const;

 private:
  Mapping page_;
};

}  // namespace rkv::rdma::shm
