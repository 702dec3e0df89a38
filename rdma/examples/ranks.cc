// Ranks that find each other over TCP: each WRITEs a word into the memory of the next rank, all
// meet at a barrier, and each looks what has come. Three threads here; processes on several
// machines run the same with a cluster file that is the same everywhere.
//
//   ranks                           three ranks in one process
//   ranks CLUSTER_FILE RANK         one rank of a group (cluster_file.h)
#include <rkv/rdma/group/barrier.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace rkv::rdma;
using rkv::Deadline;
using rkv::Result;
using rkv::Status;
using namespace std::chrono_literals;

Status take_part(Result<Node> joined) {
  RKV_ASSIGN_OR_RETURN(Node node, std::move(joined));
  RKV_ASSIGN_OR_RETURN(Barrier barrier,
                       Barrier::create(node, BarrierKind::kDissemination, Deadline::in(10s)));
  RKV_ASSIGN_OR_RETURN(
      const MemoryRegion memory,
      MemoryRegion::allocate(node.domain(), 4096,
                             AccessFlags::kLocalWrite | AccessFlags::kRemoteWrite));
  RKV_ASSIGN_OR_RETURN(const std::vector<RemoteSpan> all,
                       node.share(memory.remote(), Deadline::in(10s)));
  const std::uint32_t next = (node.rank() + 1) % node.size();
  RKV_ASSIGN_OR_RETURN(const RemoteSpan there, all[next].at(0, sizeof next));
  const RegisteredSpan word = memory.last(sizeof next);
  const std::uint32_t self = node.rank();
  std::memcpy(word.bytes().data(), &self, sizeof self);
  RKV_RETURN_IF_ERROR(node.channel(next).write(word, there, Deadline::in(10s)));
  RKV_RETURN_IF_ERROR(barrier.wait(Deadline::in(10s)));  // all words have arrived
  std::uint32_t from = 0;
  std::memcpy(&from, memory.bytes().data(), sizeof from);
  std::printf("rank %u of %u heard from rank %u\n", self, node.size(), from);
  return node.exchange().meet(Deadline::in(10s));  // nobody needs this rank's memory any more
}

// `problem` says more than an error can: a line of the cluster file, or a rank that is missing.
Status one_of_many(const std::string& file, std::string_view rank, std::string& problem) {
  std::uint32_t number = 0;
  const auto read = std::from_chars(rank.data(), rank.data() + rank.size(), number);
  if (read.ec != std::errc() || read.ptr != rank.data() + rank.size()) {
    return rkv::fail(rkv::Code::kInvalidArgument, "RANK is a number: ranks CLUSTER_FILE RANK");
  }
  RKV_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::load(file, &problem));
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  return take_part(Node::join(pd, cluster, number, Deadline::in(30s), {}, &problem));
}

Status three_threads() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const ProtectionDomain pd, ProtectionDomain::allocate(device));
  std::vector<ExchangeListener> doors;
  std::vector<HostPort> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    RKV_ASSIGN_OR_RETURN(
        ExchangeListener door,
        ExchangeListener::open({.host = "127.0.0.1", .port = 0}, Deadline::in(5s)));
    addresses.push_back({.host = "127.0.0.1", .port = door.port()});
    doors.push_back(std::move(door));
  }
  RKV_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::of(addresses));
  std::array<Status, 3> ended;
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ended[rank] =
          take_part(Node::join(pd, cluster, rank, std::move(doors[rank]), Deadline::in(30s)));
    });
  }
  threads.clear();  // joins them
  for (const Status& one : ended)
    RKV_RETURN_IF_ERROR(one);
  return {};
}

int main(int argc, char** argv) {
  std::string problem;
  const Status done = argc == 3 ? one_of_many(argv[1], argv[2], problem) : three_threads();
  if (!done) std::fprintf(stderr, "%s %s\n", to_string(done.error()).c_str(), problem.c_str());
  return done ? 0 : 1;
}
