#include "server/group/replica/name_check.h"

#include <algorithm>
#include <chrono>

#include "server/group/replica/link_surroundings.h"

namespace rkv::server {

namespace {

constexpr std::chrono::milliseconds kLimit{1000};

// Another member may now be at this member's old address.
bool is_of_one_member(const GroupConfiguration& configuration, const std::string& address) {
  return std::ranges::count(configuration.members, address, &Member::address) == 1;
}

}  // namespace

void NameCheck::read(const GroupConfiguration* configuration) {
  const Member* const other = configuration != nullptr ? configuration->find(me_.name) : nullptr;
  if (other == nullptr || other->epoch == me_.epoch || other->address == me_.address ||
      !is_of_one_member(*configuration, other->address)) {
    verdict_ = Verdict::kFree;
    connector_.reset();
    return;
  }
  if (std::pair found(other->address, other->epoch); found != called_) {
    called_ = std::move(found);
    verdict_ = Verdict::kUnknown;
    connector_ = ReplicaConnector::connect(
        io_, replica_address(other->address), secret_, kLimit,
        [this](const ReplicaConnector::Outcome& made) {
          const bool is_another =
              made ? !is_to_itself(**made, own_port_()) : made.error().is_of_another_version;
          verdict_ = is_another ? Verdict::kTaken : Verdict::kFree;
          known_();
        });
  }
}

}  // namespace rkv::server
