/* When a key with a time to live is gone, although clocks differ and primaries change.
 *
 * One key, which expires at DUE. Three replicas, each with a wall clock of its own, which is wrong by
 * any amount and may be set at any moment (JUMPS). Server 0 is the primary, server 1 may take over
 * from it, and server 2 from server 1. A primary that is asked answers "here" or "expired" without an
 * entry in the log: scans, reads of the disk and conditional writes do (a GET in memory sees the
 * removal, an entry as all others). Once anybody was answered "expired", nobody is answered "here".
 *
 * The rule: the group's time is one that all in-sync replicas know. A primary proposes its clock in
 * a heartbeat, and judges by that time when all have answered. Its proposals never fall. A new primary
 * first proposes the highest time that it has received, and judges nothing before all have answered.
 *
 * That answers come from the newest primary alone is lease.pml's and takeover.pml's matter: a primary
 * answers here until the next acts. In-sync is everybody, and later everybody but old primaries.
 *
 * accept: clocks that jump, two take-overs, a joiner
 * reject OWN_CLOCK: a primary answers by its own clock
 * reject NOT_ANSWERED: the time counts when the heartbeat is sent
 * reject ONE_ANSWER: the time counts when one backup has answered
 * reject FALLS: the time follows the primary's clock downwards
 * reject NEW_PRIMARY_BY_CLOCK: a new primary begins with its own clock
 * reject TIME_AT_ONCE: a new primary judges by the highest time that it has received, at once
 * reject JOINER_NOT_TOLD: a joiner counts before it knows the time
 */
#define CLOCKS 3 /* times 0, 1, 2 */
#define DUE 2
#ifndef JUMPS
#define JUMPS 3
#endif

byte clock_[3];    /* by replica: its wall clock */
byte received[3];  /* by replica: the highest time that it has from a primary */
byte proposed;     /* the newest heartbeat of the primary */
byte has_answered; /* bits: the backups that have answered it */
byte group_time;   /* what the primary judges by */
bool judges = true;
byte primary, jumps;
byte in_sync;      /* the primary and the backups that count */
bool expired;      /* somebody was answered so */

#define B(r) (1 << (r))
inline set_clock(r, t) { d_step { jumps < JUMPS && clock_[r] != t -> jumps++; clock_[r] = t } }
inline passes(r) { d_step { clock_[r] < CLOCKS - 1 -> clock_[r]++ } }
#ifdef FALLS
#define MAY_PROPOSE (clock_[primary] != proposed)
#else
#define MAY_PROPOSE (clock_[primary] > proposed)
#endif
inline propose() {
  d_step {
    MAY_PROPOSE -> proposed = clock_[primary]; has_answered = B(primary);
#ifdef NOT_ANSWERED
    group_time = proposed;
#endif
    received[primary] = proposed
  }
}
inline answer(b) {
  d_step {
    b > primary && !(has_answered & B(b)) -> has_answered = has_answered | B(b);
#ifdef FALLS
    received[b] = proposed
#else
    received[b] = (proposed > received[b] -> proposed : received[b])
#endif
  }
}
#ifdef ONE_ANSWER
#define ALL_HAVE (has_answered != B(primary) || in_sync == B(primary))
#else
#define ALL_HAVE ((has_answered & in_sync) == in_sync)
#endif
inline time_has_come() {
  d_step {
    ALL_HAVE && (group_time != proposed || !judges) ->
    group_time = proposed; judges = true
  }
}
#ifdef OWN_CLOCK
#define NOW clock_[primary]
#else
#define NOW group_time
#endif
inline ask() {
  d_step {
    judges ->
    if
    :: NOW >= DUE -> expired = true
    :: else -> assert(!expired)
    fi
  }
}
inline take_over() {
  d_step {
    primary < 2 && (in_sync & B(primary + 1)) ->
    in_sync = in_sync - B(primary); primary++;
#ifdef NEW_PRIMARY_BY_CLOCK
    proposed = clock_[primary];
#else
    proposed = received[primary];
#endif
    received[primary] = proposed;
    has_answered = B(primary); group_time = 0;
#ifdef TIME_AT_ONCE
    group_time = proposed
#else
    judges = false
#endif
  }
}
inline join() {
  d_step {
    !(in_sync & 4) && primary < 2 && judges -> in_sync = in_sync | 4;
#ifndef JOINER_NOT_TOLD
    received[2] = (group_time > received[2] -> group_time : received[2])
#endif
  }
}

proctype world() {
end:
  do
  :: set_clock(0, 0) :: set_clock(0, 1) :: set_clock(0, 2)
  :: set_clock(1, 0) :: set_clock(1, 1) :: set_clock(1, 2)
  :: set_clock(2, 0) :: set_clock(2, 1) :: set_clock(2, 2)
  :: passes(0) :: passes(1) :: passes(2)
  :: propose() :: answer(1) :: answer(2) :: time_has_come() :: ask() :: take_over() :: join()
  od
}

init {
  if
  :: in_sync = 7
  :: in_sync = 3
  fi;
  has_answered = 7;
  run world()
}
