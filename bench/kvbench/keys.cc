#include "bench/kvbench/keys.h"

#include <charconv>

namespace rkv::kvbench {

void KeyNames::write(std::uint64_t number, std::string& key) const {
  const auto plain = static_cast<std::int64_t>(number);
  char digits[24];
  const auto [end, error] =
      std::to_chars(digits, digits + sizeof digits, ordered ? plain : ycsb_hash(plain));
  const auto length = static_cast<std::size_t>(end - digits);
  key = "user";
  if (zero_padding > length) key.append(zero_padding - length, '0');
  key.append(digits, length);
}

}  // namespace rkv::kvbench
