// Somebody else's program over an adapter's own transport: that it starts shows that it was built
// and linked.
#include <rkv/rdma/efa.h>

#include <cstdio>

int main() {
  const auto device = rkv::rdma::Device::open_first_active();
  if (!device) {
    std::printf("no device\n");
    return 0;
  }
  const auto limits = rkv::rdma::efa_attributes(*device);
  std::printf("%s\n", limits ? "EFA" : "no EFA");
}
