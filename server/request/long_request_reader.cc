#include "server/request/long_request_reader.h"

#include <algorithm>

#include "common/check.h"

namespace rkv::server {

Result<LongRequestReader> LongRequestReader::create(rdma::Transport& transport,
                                                    std::uint32_t buffers) {
  LongRequestReader made;
  if (buffers == 0) return made;
  RKV_ASSIGN_OR_RETURN(made.region_, transport.allocate(std::size_t{buffers} * kMaxMessageBytes,
                                                        rdma::Access::kLocal));
  made.reads_.resize(buffers);
  for (std::uint32_t i = buffers; i-- > 0;)
    made.free_.push_back(i);
  return made;
}

bool LongRequestReader::begin(Session& session, const MessageSource& source, std::uint64_t sequence,
                              Nanos now) {
  RKV_CHECK(!free_.empty(), "a long request without a buffer");
  const std::uint32_t index = free_.back();
  const rdma::Operation read =
      rdma::Operation::read(buffer(index).first(source.length), region_->local_key(),
                            source.address, source.remote_key, kBit | index);
  const auto taken = session.connection->post(std::span(&read, 1));
  if (!taken || *taken == 0) return false;
  free_.pop_back();
  reads_[index] = {.session = &session,
                   .under_way = true,
                   .length = source.length,
                   .sequence = sequence,
                   .since = now};
  ++session.longs;
  return true;
}

LongRequestReader::Arrived LongRequestReader::on_read(std::uint64_t context) {
  const std::uint64_t index = context & ~std::uint64_t{kBit};
  RKV_CHECK(index < reads_.size() && reads_[index].under_way, "a READ nobody posted");
  Read& read = reads_[index];
  read.under_way = false;
  const Bytes message = buffer(index).first(read.length);
  const auto opcode = static_cast<Opcode>(load_le<std::uint8_t>(message.data()));
  return {.message = message,
          .as_announced = !traits_of(opcode).names_memory &&
                          load_le<std::uint64_t>(message.data() + 8) == read.sequence,
          .since = read.since};
}

Session* LongRequestReader::overdue(Nanos now) const {
  const auto late = std::ranges::find_if(reads_, [&](const Read& read) {
    return read.under_way && !read.session->ending && now - read.since >= kLongestRead;
  });
  return late == reads_.end() ? nullptr : late->session;
}

void LongRequestReader::give_back(std::uint32_t buffer) {
  RKV_CHECK(!reads_[buffer & ~kBit].under_way, "LONG-1");
  free_buffer(buffer & ~kBit);
}

void LongRequestReader::free_buffer(std::uint32_t index) {
  --reads_[index].session->longs;
  reads_[index] = {};
  free_.push_back(index);
}

void LongRequestReader::drop_all(const Session& session) {
  for (std::uint32_t i = 0; i < reads_.size(); ++i)
    if (reads_[i].session == &session) free_buffer(i);
}

}  // namespace rkv::server
