// Judges a page of a scan while other threads write: it knows what was written, not how a page is
// built.
//
// Each key has one writer, which counts its operations on the key from 1. An odd operation is a PUT
// of its own number, an even one a DELETE; all operations on a steady key are PUTs.
//
// Each page is judged by the operations that were done before its request and those that began
// before its arrival:
//   JUDGE-1  Keys rise strictly, and are greater than those of the pages before.
//   JUDGE-2  Every key was written by some writer. Its number was begun, and is not older than one
//       that was done before the request.
//   JUDGE-3  No key within the page's range is missing that was present all the time.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rkv::testing {

struct ScanProgress {
  std::uint64_t done = 0;
  std::uint64_t begun = 0;
};

class ScanJudge {
 public:
  struct Entry {
    std::string key;
    std::uint64_t number = 0;
  };
  // The knowledge of one key: writes `done` before the page was requested, and `begun` before it
  // arrived.
  struct Known {
    bool steady = false;
    ScanProgress progress;
  };

  // Returns the violated rule, or empty. `last`: no page follows.
  std::optional<std::string> page(const std::vector<Entry>& entries, bool last,
                                  const std::map<std::string, Known>& known) {
    for (const Entry& entry : entries) {
      if (any_ && entry.key <= behind_)
        return fmt::format("{} comes behind {}", entry.key, behind_);
      for (auto at = next(known); at != known.end() && at->first < entry.key; ++at) {
        if (must_be_there(at->second)) return fmt::format("{} is missing", at->first);
      }
      const auto found = known.find(entry.key);
      if (found == known.end()) return fmt::format("nobody wrote {}", entry.key);
      if (!may_be(entry.number, found->second)) {
        return fmt::format("{} is {}, with {} done before and {} begun", entry.key, entry.number,
                           found->second.progress.done, found->second.progress.begun);
      }
      behind_ = entry.key;
      any_ = true;
    }
    if (!last) return std::nullopt;
    for (auto at = next(known); at != known.end(); ++at) {
      if (must_be_there(at->second)) return fmt::format("{} is missing at the end", at->first);
    }
    return std::nullopt;
  }

 private:
  std::map<std::string, Known>::const_iterator next(const std::map<std::string, Known>& all) const {
    return any_ ? all.upper_bound(behind_) : all.begin();
  }
  static bool must_be_there(const Known& known) {
    const auto [done, begun] = known.progress;
    if (known.steady) return done != 0;
    return done % 2 == 1 && begun == done;
  }
  static bool may_be(std::uint64_t number, const Known& known) {
    const auto [done, begun] = known.progress;
    return number != 0 && number >= done && number <= begun && (known.steady || number % 2 == 1);
  }

  std::string behind_;
  bool any_ = false;
};

}  // namespace rkv::testing
