// The page by which a server proves to its clients, without a system call, that it still lives, and
// tells them that regions have gone. Made by the server, read by everybody it accepts.
//
// Memory outlives who made it, so a copy out of a dead server's region succeeds for ever. What ends
// with a process for certain is a robust futex: a word that holds the number of a thread, and that
// the kernel marks when that thread exits, however that comes about.
//
// Invariants
//  H1  A client that finds the word held *after* it has copied may believe the copy. The server was
//      alive at that moment, and no successor had acknowledged anything: a successor waits until
//      the process is gone, or for a lock that is given up with the process's descriptors, and
//      Linux gives those up (exit_files) after every thread has marked its robust futexes
//      (exit_mm). So "held" comes before "gone" comes before "acknowledged by a successor".
//  H2  The holder is a thread that does nothing else, with all signals blocked: it ends when the
//      transport ends or when the process does. exec() marks the word as well.
//  H3  A forked child does not inherit the word: it is marked when the server dies although the
//      child has the page. (The child has no business with the transport; descriptors are closed on
//      exec.)
//  H4  Nobody but the server can write the page (F_SEAL_FUTURE_WRITE).
//  H5  `regions_gone` rises after the news of it lies in every client's socket (regions.h): who
//      sees the new number finds the news.
//  H6  What the kernel reads when the thread exits lies in shared pages. That is why this is no
//      pthread_mutex_t: its list is in the thread's private memory, which the kernel's reaper may
//      take from a process that is killed for lack of memory *before* its threads exit; then
//      nothing would be marked.
#pragma once

#include <memory>

#include "rdma/shm/memory.h"

namespace rkv::rdma::shm {

inline constexpr std::size_t kPageBytes = 4096;

// The server's end.
class HostPage {
 public:
  // Starts the thread.
  static Result<std::unique_ptr<HostPage>> create();
  ~HostPage();  // gives the word up: for clients, the server is dead
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
  // One load. What was loaded before the call was loaded from a living server (H1).
  bool alive_after_copy() const;
  // Rises when a region is no more.
  std::uint64_t regions_gone() const;

 private:
  Mapping page_;
};

}  // namespace rkv::rdma::shm
