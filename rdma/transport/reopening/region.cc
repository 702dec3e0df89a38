// Regions and atomics: the parts whose memory stays in place.
#include <utility>

#include "rdma/transport/reopening/parts.h"

namespace rkv::rdma::reopening {

KeptRegion::KeptRegion(std::shared_ptr<Parts> parts, MutableBytes memory, Access access,
                       std::shared_ptr<void> owner)
    : parts_(std::move(parts)), owner_(std::move(owner)), memory_(memory), access_(access) {}

KeptRegion::~KeptRegion() {
  parts_->remove(*this);
}

Status KeptRegion::enroll(Transport& transport) {
  RKV_ASSIGN_OR_RETURN(registration_, transport.attach(memory_, access_));
  local_key_.store(registration_->local_key(), std::memory_order_relaxed);
  remote_key_.store(registration_->remote_key(), std::memory_order_relaxed);
  return {};
}

KeptAtomics::KeptAtomics(std::shared_ptr<Parts> parts, const KeptRegion& region)
    : parts_(std::move(parts)), region_(region) {}

KeptAtomics::~KeptAtomics() {
  parts_->remove(*this);
}

Status KeptAtomics::enroll(Transport& transport) {
  auto atomics = transport.create_atomics(region_.registration());
  if (!atomics) return std::unexpected(atomics.error());
  const MutexLock lock(mutex_);
  device_ = std::move(*atomics);
  return {};
}

void KeptAtomics::lose() {
  const MutexLock lock(mutex_);
  device_.reset();
}

void KeptAtomics::own() {
  const MutexLock lock(mutex_);
  owned_ = true;
}

void KeptAtomics::disown() {
  const MutexLock lock(mutex_);
  owned_ = false;
}

namespace {
constexpr const char* kBetween = "the RDMA device is lost: nothing was done, try again";
}  // namespace

Result<std::uint64_t> KeptAtomics::fetch_add(std::uint64_t* word, std::uint64_t addend) {
  const MutexLock lock(mutex_);
  if (device_ != nullptr) return device_->fetch_add(word, addend);
  if (!owned_) return fail(Code::kInternal, kBetween);
  return std::atomic_ref(*word).fetch_add(addend, std::memory_order_seq_cst);
}

Result<std::uint64_t> KeptAtomics::compare_swap(std::uint64_t* word, std::uint64_t expected,
                                                std::uint64_t desired) {
  const MutexLock lock(mutex_);
  if (device_ != nullptr) return device_->compare_swap(word, expected, desired);
  if (!owned_) return fail(Code::kInternal, kBetween);
  std::atomic_ref(*word).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
  return expected;
}

}  // namespace rkv::rdma::reopening
