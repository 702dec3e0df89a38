// expect: use of deleted function.*after_ms
using namespace rkv;

bool late() {
#ifndef RKV_WRONG
  const SteadyClock clock;
  return Deadline::after_ms(clock, 100).passed();
#else
  return Deadline::after_ms(SteadyClock(), 100).passed();
#endif
}
