// The operations of an AsyncClient that wait for a pipeline, and how a pipeline hands them back.
//
// Thread safety: none.
#pragma once

#include "client/async/operation_list.h"
#include "client/engine/get_pipeline.h"
#include "client/engine/write_pipeline.h"

namespace rkv::client {

// Takes operations that have ended.
class AsyncEnds {
 public:
  virtual ~AsyncEnds() = default;
  virtual void end(AsyncOperation& operation, const Result<Outcome>& result) noexcept = 0;
};

inline std::uint64_t token_of(const AsyncOperation& operation) {
  return reinterpret_cast<std::uint64_t>(&operation);
}
inline AsyncOperation& operation_of(std::uint64_t token) {
  return *reinterpret_cast<AsyncOperation*>(token);
}

class QueuedGets final : public GetFeed {
 public:
  explicit QueuedGets(AsyncEnds& ends) : ends_(&ends) {}
  OperationList& list() { return list_; }
  bool empty() const override { return list_.empty(); }
  std::size_t take(std::span<GetItem> out) override;
  void done(std::uint64_t token, const Result<ValueView>& result) override;

 private:
  AsyncEnds* ends_;
  OperationList list_;
};

class QueuedWrites final : public WriteFeed {
 public:
  QueuedWrites(AsyncEnds& ends, const Session& session) : ends_(&ends), session_(&session) {}
  OperationList& list() { return list_; }
  bool empty() const override { return list_.empty(); }
  std::uint64_t take() override;
  std::size_t burst() const override { return list_.size(); }
  Request request(std::uint64_t token) const override { return request_of(operation_of(token)); }
  Nanos deadline(std::uint64_t token) const override { return operation_of(token).deadline_; }
  void done(std::uint64_t token, const Response& answer) override;
  void failed(std::uint64_t token, const Error& error) override;

  // Writes the operands to where the request will refer to them. Fails with kInvalidArgument.
  static Status prepare(AsyncOperation& operation);

 private:
  static Request request_of(const AsyncOperation& operation);

  AsyncEnds* ends_;
  const Session* session_;
  OperationList list_;
};

}  // namespace rkv::client
