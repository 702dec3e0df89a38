// A simulated device, for tests of objects that outlive a device. Everything on it is counted, so a
// test sees what is left; a Lab controls the events.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rdma/transport/transport.h"

namespace rkv::rdma {

// The state shared by the device and everything on it.
struct Lab {
  std::mutex mutex;
  std::deque<DeviceEvent> events;
  bool present = true;
  int attaches_left = 1000;  // then one fails
  int opened = 0;
  int transports = 0;
  int regions = 0;
  int queues = 0;
  int listeners = 0;
  int atomics = 0;
  int connections = 0;
  int given_back = 0;  // receive buffers
  std::uint32_t next_key = 100;
  std::string listening{};
  bool request = false;                  // a client wants to connect
  std::function<void()> while_ending{};  // called while a queue or a listener ends

  void happens(DeviceEvent::Kind kind, const char* what) {
    const std::scoped_lock lock(mutex);
    events.push_back({.kind = kind, .what = what});
  }
};

// Counts itself among the existing objects.
class Counted {
 public:
  Counted(Lab& lab, int Lab::* count) : lab_(lab), count_(count) { change(1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { change(-1); }

 private:
  void change(int by) {
    const std::scoped_lock lock(lab_.mutex);
    lab_.*count_ += by;
  }
  Lab& lab_;
  int Lab::* count_;
};

class MadeUpRegion final : public Region {
 public:
  MadeUpRegion(Lab& lab, MutableBytes memory)
      : counted_(lab, &Lab::regions), memory_(memory), key_(lab.next_key++) {}
  MutableBytes bytes() const override { return memory_; }
  std::uint32_t local_key() const override { return key_; }
  std::uint32_t remote_key() const override { return key_; }

 private:
  Counted counted_;
  MutableBytes memory_;
  std::uint32_t key_;
};

// Adds ten times the requested amount, so that the result shows the caller.
class MadeUpAtomics final : public Atomics {
 public:
  explicit MadeUpAtomics(Lab& lab) : counted_(lab, &Lab::atomics) {}
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    return std::exchange(*word, *word + 10 * addend);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t, std::uint64_t) override {
    return *word;
  }

 private:
  Counted counted_;
};

class MadeUpQueue;

class MadeUpConnection final : public Connection {
 public:
  MadeUpConnection(Lab& lab, MadeUpQueue& queue);
  ~MadeUpConnection() override;
  Result<std::size_t> post(std::span<const Operation> batch) override { return batch.size(); }
  ConnectionLimits limits() const override { return {}; }
  Bytes private_data() const override { return {}; }
  const std::string& peer() const override { return peer_; }
  bool alive() const override { return true; }
  void abort() override {}

 private:
  Counted counted_;
  MadeUpQueue& queue_;
  std::string peer_ = "fake";
};

class MadeUpQueue final : public Queue {
 public:
  explicit MadeUpQueue(Lab& lab) : lab_(lab), counted_(lab, &Lab::queues) {}
  ~MadeUpQueue() override {
    EXPECT_TRUE(bound_.empty()) << "a queue ends before its connections";
    if (lab_.while_ending) lab_.while_ending();
  }
  std::size_t poll(std::span<Completion> out) override {
    const std::scoped_lock lock(mutex_);
    if (bound_.empty()) return 0;
    if (std::exchange(message_, false)) {
      out[0] = {.kind = Completion::Kind::kReceive, .connection = bound_.front()};
      return 1;
    }
    for (Connection* const connection : bound_) {
      if (!abandoned_ || !told_.insert(connection).second) continue;
      out[0] = {.kind = Completion::Kind::kDisconnected, .connection = connection};
      return 1;
    }
    return 0;
  }
  void wait(const Deadline&) override { std::this_thread::yield(); }
  void wake() override {}
  void release(std::span<const std::uint32_t> buffers) override {
    const std::scoped_lock lock(lab_.mutex);
    lab_.given_back += static_cast<int>(buffers.size());
  }
  std::size_t connections() const override {
    const std::scoped_lock lock(mutex_);
    return bound_.size();
  }
  void abandon() override {
    const std::scoped_lock lock(mutex_);
    abandoned_ = true;
  }
  void bind(Connection* connection) {
    const std::scoped_lock lock(mutex_);
    bound_.push_back(connection);
    message_ = true;
  }
  void unbind(Connection* connection) {
    const std::scoped_lock lock(mutex_);
    std::erase(bound_, connection);
    told_.erase(connection);
  }

 private:
  Lab& lab_;
  Counted counted_;
  mutable std::mutex mutex_;
  std::vector<Connection*> bound_;
  bool message_ = false;
  bool abandoned_ = false;
  std::set<Connection*> told_;  // connections whose end was reported
};

inline MadeUpConnection::MadeUpConnection(Lab& lab, MadeUpQueue& queue)
    : counted_(lab, &Lab::connections), queue_(queue) {
  queue_.bind(this);
}
inline MadeUpConnection::~MadeUpConnection() {
  queue_.unbind(this);
}

class MadeUpIncoming final : public Incoming {
 public:
  explicit MadeUpIncoming(Lab& lab) : lab_(lab) {}
  Bytes private_data() const override { return {}; }
  const std::string& peer() const override { return peer_; }
  std::string called() const override { return "made up"; }
  Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions&, Bytes,
                                             const Deadline&) override {
    return std::make_unique<MadeUpConnection>(lab_, dynamic_cast<MadeUpQueue&>(queue));
  }
  void reject(Bytes) override {}

 private:
  Lab& lab_;
  std::string peer_ = "fake";
};

class MadeUpListener final : public Listener {
 public:
  explicit MadeUpListener(Lab& lab) : lab_(lab), counted_(lab, &Lab::listeners) {}
  ~MadeUpListener() override {
    if (lab_.while_ending) lab_.while_ending();
  }
  Result<std::unique_ptr<Incoming>> next(const Deadline&) override {
    const std::scoped_lock lock(lab_.mutex);
    if (!std::exchange(lab_.request, false)) return std::unique_ptr<Incoming>();
    return std::make_unique<MadeUpIncoming>(lab_);
  }
  void wake() override {}
  std::uint16_t port() const override { return 4711; }

 private:
  Lab& lab_;
  Counted counted_;
};

class MadeUpWatch final : public DeviceWatch {
 public:
  explicit MadeUpWatch(Lab& lab) : lab_(lab) {}
  DeviceEvent next(const Deadline&) override {
    const std::scoped_lock lock(lab_.mutex);
    if (lab_.events.empty()) return {};
    DeviceEvent event = std::move(lab_.events.front());
    lab_.events.pop_front();
    return event;
  }
  void wake() override {}

 private:
  Lab& lab_;
};

class MadeUpTransport final : public Transport {
 public:
  explicit MadeUpTransport(Lab& lab)
      : lab_(lab), counted_(lab, &Lab::transports), number_(++lab.opened) {}
  ~MadeUpTransport() override {
    const std::scoped_lock lock(lab_.mutex);
    EXPECT_EQ(lab_.regions + lab_.queues + lab_.listeners + lab_.atomics, 0)
        << "a device ends before what is made from it";
  }
  std::string describe() const override { return "fake " + std::to_string(number_); }
  Result<std::unique_ptr<Region>> allocate(std::size_t, Access) override {
    return fail(Code::kUnsupported, "memory is not the device's");
  }
  Result<std::unique_ptr<Region>> attach(MutableBytes memory, Access) override {
    if (lab_.attaches_left-- == 0) return fail(Code::kOutOfMemory, "no room for a region");
    return std::make_unique<MadeUpRegion>(lab_, memory);
  }
  Result<std::unique_ptr<Atomics>> create_atomics(const Region&) override {
    return std::make_unique<MadeUpAtomics>(lab_);
  }
  Result<std::unique_ptr<Queue>> create_queue(const QueueOptions&) override {
    return std::make_unique<MadeUpQueue>(lab_);
  }
  Result<std::unique_ptr<DeviceWatch>> watch_device() override {
    return std::make_unique<MadeUpWatch>(lab_);
  }
  Result<std::unique_ptr<Listener>> listen(const std::string& address) override {
    lab_.listening = address;
    return std::make_unique<MadeUpListener>(lab_);
  }
  Result<std::unique_ptr<Connection>> connect(Queue& queue, const ConnectionOptions&,
                                              const std::string&, Bytes, const Deadline&,
                                              Rejection*) override {
    return std::make_unique<MadeUpConnection>(lab_, dynamic_cast<MadeUpQueue&>(queue));
  }

 private:
  Lab& lab_;
  Counted counted_;
  int number_;
};

}  // namespace rkv::rdma
