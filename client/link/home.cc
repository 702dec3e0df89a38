#include "client/link/home.h"

#include <fmt/format.h>

namespace rkv::client {

std::string Home::difference(const Store& home, const ConnectAccept& accept) {
  if (home.in_group && accept.in_group) return "it is of another replicated group than";
  if (home.in_group) return "it is of no replicated group, as is";
  if (accept.in_group) return "it is of a replicated group, unlike";
  return accept.store == 0 ? "it keeps its data in memory only, unlike"
                           : "its data directory is another one than that of";
}

Status Home::admit(const ConnectAccept& accept, std::string& why) const {
  const MutexLock lock(mutex_);
  if (!store_ || (store_->is_volatile() && !accept.in_group)) return {};
  if (store_->in_group == accept.in_group && store_->number == accept.store) return {};
  why = fmt::format(
      "{} the server that this client was connected to ({}): correct its list of servers, or open "
      "a new client to use this one",
      difference(*store_, accept), store_->address);
  return fail(
      Code::kRejected,
      "the server has another store than this client was connected to: check its address, or open "
      "a new client");
}

void Home::settle(const ConnectAccept& accept, const std::string& address) {
  const MutexLock lock(mutex_);
  store_ = {.in_group = accept.in_group, .number = accept.store, .address = address};
}

}  // namespace rkv::client
