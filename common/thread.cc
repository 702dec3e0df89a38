#include "common/thread.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "common/parse.h"

namespace rkv {

namespace {

constexpr unsigned kMost = CPU_SETSIZE - 1;

// "3" or "2-5"; false: it is neither.
bool add_range(std::string_view range, std::vector<unsigned>& to) {
  const std::size_t dash = range.find('-');
  const auto first = parse_number<unsigned>(range.substr(0, dash), 0, kMost);
  const auto last = dash == std::string_view::npos
                        ? first
                        : parse_number<unsigned>(range.substr(dash + 1), 0, kMost);
  if (!first || !last || *first > *last) return false;
  for (unsigned processor = *first; processor <= *last; ++processor)
    to.push_back(processor);
  return true;
}

std::string allowed_list(const cpu_set_t& allowed) {
  std::string list;
  for (unsigned i = 0; i <= kMost; ++i) {
    if (!CPU_ISSET(i, &allowed)) continue;
    unsigned end = i;
    while (end < kMost && CPU_ISSET(end + 1, &allowed))
      ++end;
    list += fmt::format("{}{}", list.empty() ? "" : ",", i);
    if (end > i) list += fmt::format("-{}", end);
    i = end;
  }
  return list;
}

}  // namespace

std::expected<std::vector<unsigned>, std::string> parse_processors(std::string_view list) {
  std::vector<unsigned> all;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (!add_range(list.substr(begin, end - begin), all)) {
      return std::unexpected("must be processors by number, as 2-5,8");
    }
    begin = end + 1;
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (std::find(all.begin(), one, *one) != one) {
      return std::unexpected("must name each processor once");
    }
    if (!CPU_ISSET(*one, &allowed)) {
      return std::unexpected(fmt::format("must be of the processors that this process may use, {}",
                                         allowed_list(allowed)));
    }
  }
  return all;
}

Status stay_on(unsigned processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) {
    return fail(Code::kInvalidArgument, "this processor cannot be used any more");
  }
  return {};
}

}  // namespace rkv
