// The servers that a client may connect to: one, or those of a group, of which one is the primary.
// It says which to try next, and when that may be at once.
//
// Invariant:
//  SERVERS-1  Between two waits each known server is tried once, and one more for a redirection. So
//      servers that direct to each other cost a bounded number of attempts, whatever they say.
//
// Thread safety: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rkv/result.h"

namespace rkv::client {

class Servers {
 public:
  // Primaries that servers have named, beyond the list given.
  static constexpr std::size_t kMostLearned = 4;

  // Whether this names several servers of one group: "a:7471,b:7471".
  static bool is_list(std::string_view text) { return text.find(',') != std::string_view::npos; }
  // The entries of such a list; of another text, the text.
  static std::vector<std::string> entries(std::string_view text);
  // kInvalidArgument: an entry of a list is not an address, or is there twice.
  static Status check(std::string_view text);
  // REQUIRES: check() has succeeded.
  explicit Servers(std::string_view text);

  const std::string& current() const { return known_[current_].address; }
  bool are_several() const { return known_.size() > 1; }

  // An attempt to connect to the present server has failed. `primary`: the server that it has named
  // as the primary, or empty. Moves on; returns whether that server may be tried at once.
  bool failed(std::string_view why, std::string_view primary);
  // The present server is not believed any more. Moves on.
  void distrusted();
  void connected();
  // There was a wait before the next attempt.
  void waited() { attempts_ = 0; }

  // "a:7471: unreachable; b:7471: a backup of a:7471": what was tried since the last connection.
  std::string tried() const;

 private:
  struct Known {
    std::string address;
    std::string why{};  // it failed last, or empty
  };
  std::size_t place_of(std::string_view primary);

  std::vector<Known> known_;  // the list, then what was learned
  std::size_t listed_ = 0;
  std::size_t replaced_ = 0;  // of those learned, the one to forget next
  std::size_t current_ = 0;
  std::size_t attempts_ = 0;  // since the last wait
};

}  // namespace rkv::client
