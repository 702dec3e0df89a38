// Servers: the servers that a client may connect to: one, or those of a group, of which one is the
// primary. It says which server to try next, and whether that may be at once.
//
// Invariant:
//  SERVERS-1  Between two waits each known server is tried once, plus one more attempt for a
//      redirection. So servers that redirect to each other cost a bounded number of attempts,
//      whatever they say.
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
  // Most primaries that are remembered because servers named them, beyond the given list.
  static constexpr std::size_t kMostLearned = 4;

  // Whether the text names several servers of one group: "a:7471,b:7471".
  static bool is_list(std::string_view text) { return text.find(',') != std::string_view::npos; }
  // Returns the entries of such a list; if the text is not a list, the text.
  static std::vector<std::string> entries(std::string_view text);
  // kInvalidArgument: an entry of a list is not an address, or occurs twice.
  static Status check(std::string_view text);
  // REQUIRES: check() has succeeded.
  explicit Servers(std::string_view text);

  const std::string& current() const { return known_[current_].address; }
  bool are_several() const { return known_.size() > 1; }

  // An attempt to connect to the present server has failed. `primary`: the server that it has named
  // as the primary, or empty. `was_cut`: the call's deadline left this attempt less time than
  // others, so the reason of an earlier attempt says more. Moves on to the next server; returns
  // whether it may be tried at once.
  bool failed(std::string_view why, std::string_view primary, bool was_cut = false);
  // Call it before failed() if the present server does not have this client's store.
  void is_of_another_store() { known_[current_].has_other_store = true; }
  // Whether the failed attempt was to a server of another store, and other servers may have this
  // client's store.
  bool may_be_another() const;
  // The present server is not believed any more. Moves on to the next one.
  void distrusted();
  void connected();
  // Call it when there was a wait before the next attempt.
  void waited() { attempts_ = 0; }

  // Describes the attempts since the last connection: "a:7471: unreachable; b:7471: a backup of
  // a:7471".
  std::string tried() const;

 private:
  struct Known {
    std::string address;
    std::string why{};  // the reason of its last failure, or empty
    bool has_other_store = false;
  };
  std::size_t place_of(std::string_view primary);

  std::vector<Known> known_;  // the list, then what was learned
  std::size_t listed_ = 0;
  std::size_t replaced_ = 0;  // index, among the learned servers, of the one to forget next
  std::size_t current_ = 0;
  std::size_t attempts_ = 0;   // number of attempts since the last wait
  std::size_t attempted_ = 0;  // last
};

}  // namespace rkv::client
