#include "rkv/rdma/extended_completion.h"

#include <cerrno>

namespace rkv::rdma::detail {

int ClassicReader::fetch(ibv_cq_ex* self) {
  auto* reader = static_cast<ClassicReader*>(self);
  const int found = ibv_poll_cq(reader->from_, 1, &reader->now_);
  if (found < 0) return EIO;
  if (found == 0) return ENOENT;
  reader->wr_id = reader->now_.wr_id;
  reader->status = reader->now_.status;
  return 0;
}

const ibv_wc& ClassicReader::now(ibv_cq_ex* self) {
  return static_cast<ClassicReader*>(self)->now_;
}

ClassicReader::ClassicReader(ibv_cq* from) : ibv_cq_ex{}, from_(from) {
  start_poll = [](ibv_cq_ex* self, ibv_poll_cq_attr*) { return fetch(self); };
  next_poll = [](ibv_cq_ex* self) { return fetch(self); };
  end_poll = [](ibv_cq_ex*) {};
  read_opcode = [](ibv_cq_ex* self) { return now(self).opcode; };
  read_vendor_err = [](ibv_cq_ex* self) { return now(self).vendor_err; };
  read_byte_len = [](ibv_cq_ex* self) { return now(self).byte_len; };
  read_imm_data = [](ibv_cq_ex* self) { return now(self).imm_data; };
  read_qp_num = [](ibv_cq_ex* self) { return now(self).qp_num; };
  read_src_qp = [](ibv_cq_ex* self) { return now(self).src_qp; };
  read_wc_flags = [](ibv_cq_ex* self) { return now(self).wc_flags; };
  read_slid = [](ibv_cq_ex* self) { return std::uint32_t{now(self).slid}; };
  read_sl = [](ibv_cq_ex* self) { return now(self).sl; };
  read_dlid_path_bits = [](ibv_cq_ex* self) { return now(self).dlid_path_bits; };
}

int PollState::start_again(ibv_cq_ex* queue) noexcept {
  ibv_end_poll(queue);
  ibv_poll_cq_attr none{};
  return ibv_start_poll(queue, &none);
}

}  // namespace rkv::rdma::detail
