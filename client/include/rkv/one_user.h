// Finds out that two threads use an object that is for one at a time, or that the object was moved
// from, and ends the process with a sentence (RKV_CHECK). Says whether the object was inherited
// from the process that forked. Programs do not use it.
//
// A use costs a load, a comparison and two stores, none of which locks the line. So two threads
// that begin in the same instant may both pass. A program with such a bug is found out soon, and
// not surely at the first time.
//
// Thread safety: any thread.
#pragma once

#include <atomic>

#include "rkv/check.h"
#include "rkv/fork.h"
#include "rkv/result.h"

namespace rkv::client {

// How each call of an inherited client ends (FORK-1). Nothing was sent.
inline constexpr Error kInherited{
    .code = Code::kInvalidArgument,
    .text = "the client was made before fork(): a child makes a client of its own"};

class OneUser {
 public:
  // The sentences with which the process ends.
  struct Sentences {
    const char* two_threads;
    const char* moved_from;
  };

  explicit OneUser(const Sentences& sentences) : sentences_(&sentences) {}
  // REQUIRES that no call is under way. One that was at the fork is not in the child.
  OneUser(OneUser&& other) noexcept : sentences_(other.sentences_) { take(other); }
  OneUser& operator=(OneUser&& other) noexcept {
    if (at() == State::kUsed && !is_inherited()) [[unlikely]]
      refuse();
    take(other);
    return *this;
  }
  ~OneUser() = default;

  // The object is used while this lives.
  class Use {
   public:
    explicit Use(OneUser& of) : of_(of) {
      if (of.at() != State::kFree) [[unlikely]]
        of.refuse();
      of.set(State::kUsed);
    }
    ~Use() { of_.set(State::kFree); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    OneUser& of_;
  };

  // Whether this is a child of the process that made the object: it is not to be used here.
  bool is_inherited() const { return guard_.is_inherited(); }
  // Ends the process if the object was moved from. For functions that are not calls of a server.
  void check_owner() const {
    if (at() == State::kMovedFrom) [[unlikely]]
      refuse();
  }

 private:
  enum class State : unsigned char { kFree, kUsed, kMovedFrom };
  State at() const { return state_.load(std::memory_order_relaxed); }
  void set(State state) { state_.store(state, std::memory_order_relaxed); }
  void take(OneUser& other) {
    const State was = other.at();
    if (was == State::kUsed && !other.is_inherited()) [[unlikely]]
      other.refuse();
    other.set(State::kMovedFrom);
    set(was);
    guard_ = other.guard_;
  }
  // A visitor that uses its own client is the other way to meet a use.
  [[noreturn, gnu::cold, gnu::noinline]] void refuse() const noexcept {
    const bool is_moved_from = at() == State::kMovedFrom;
    check_failed(is_moved_from ? "is not moved from" : "is not in use", __FILE__, __LINE__,
                 is_moved_from ? sentences_->moved_from : sentences_->two_threads);
  }

  std::atomic<State> state_ = State::kFree;
  ForkGuard guard_;
  const Sentences* sentences_;
};

}  // namespace rkv::client
