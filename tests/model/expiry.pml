/* When a key with a time to live is gone, although clocks are wrong and primaries change.
 *
 * One key, put at the time 0, which lives for DUE. Server 0 is the primary, server 1 may take over
 * from it, and server 2 from server 1. A primary that is asked answers "here" or "expired" without an
 * entry in the log: scans, reads of the disk and conditional writes do (a GET in memory sees the
 * removal, an entry as all others). Once anybody was answered "expired", nobody is answered "here",
 * and nobody is answered "expired" before DUE has passed.
 *
 * The rule (server/group/rules/group_time.h): a primary sends its time in each message. A backup
 * takes it for the time at which the message arrived, and lets it run. The primary does the same from
 * the arrival of the answer. It judges by the least of what all in sync have answered. A new primary
 * goes on from what it knows, and judges nothing before all have answered so much.
 *
 * Clocks run evenly here: that their rates differ is drift.py's matter. That answers come from the
 * newest primary alone is lease.pml's and takeover.pml's: a primary answers here until the next acts.
 * In-sync is everybody, and later everybody but old primaries.
 *
 * accept: messages and answers that take any time, two take-overs, a joiner
 * reject OWN_CLOCK: a primary judges by its own clock
 * reject NOT_ANSWERED: a time counts when the message is sent
 * reject ONE_ANSWER: a time counts when one backup has answered
 * reject RUNS_FROM_SENDING: a primary lets a time run from when the message was sent
 * reject FALLS: the time follows the primary's clock downwards
 * reject FOLLOWS_WALL: the primary's time follows a wall clock that is wrong for a moment
 * reject BEGINS_AHEAD: times are sent before they have come, and a new primary begins there
 * reject NEW_PRIMARY_BY_CLOCK: a new primary begins with its own wall clock
 * reject TIME_AT_ONCE: a new primary judges by what it knows, at once
 * reject JOINER_NOT_TOLD: a joiner counts before it knows the time
 */
#define TIMES 4 /* 0 .. 3 */
#define DUE 2
#define NONE 255

byte real;          /* the time that has passed */
byte own;           /* the clock of the primary */
byte knows[3];      /* by replica: a time that it knows, and lets run; NONE: none */
byte known[3];      /* the same, as the primary has it from the answers */
byte to[3];         /* a message on its way to this backup: the primary's time when it was sent */
byte from[3];       /* an answer on its way: what the message had */
byte runs[3];       /* the same, running from when the message was sent */
byte least;         /* what the primary began its term with */
byte shown;         /* what it has judged by, in its term */
bool judges = true;
byte primary;
byte in_sync;       /* the primary and the backups that count */
bool expired;       /* somebody was answered so */
bool was_wrong;     /* the wall clock */

#define B(r) (1 << (r))
#define RUN(time) time = (time == NONE -> NONE : time + 1)
#define HIGHER(a, b) ((a) == NONE || ((b) != NONE && (b) > (a)) -> (b) : (a))

inline passes() {
  d_step {
    real < TIMES - 1 -> real++; own++;
    RUN(knows[0]); RUN(knows[1]); RUN(knows[2]);
    RUN(known[0]); RUN(known[1]); RUN(known[2]);
    RUN(runs[0]); RUN(runs[1]); RUN(runs[2])
  }
}
#ifdef BEGINS_AHEAD
#define SENT (own + 1)
#else
#define SENT own
#endif
inline send(b) {
  d_step {
    b > primary && to[b] == NONE && from[b] == NONE -> to[b] = SENT; runs[b] = SENT;
#ifdef NOT_ANSWERED
    known[b] = HIGHER(known[b], SENT)
#endif
  }
}
inline receive(b) {
  d_step {
    to[b] != NONE -> knows[b] = HIGHER(knows[b], to[b]); from[b] = to[b]; to[b] = NONE
  }
}
inline answered(b) {
  d_step {
    from[b] != NONE ->
#ifdef RUNS_FROM_SENDING
    known[b] = HIGHER(known[b], runs[b]);
#else
    known[b] = HIGHER(known[b], from[b]);
#endif
    from[b] = NONE; runs[b] = NONE
  }
}
/* Whether all that count know the time t, as the primary has it. */
#define COUNTS(b) (b > primary && (in_sync & B(b)))
#define HAS(b, t) (!COUNTS(b) || (known[b] != NONE && known[b] >= (t)))
#ifdef ONE_ANSWER
#define ALL_HAVE(t) ((!COUNTS(1) && !COUNTS(2)) || (COUNTS(1) && HAS(1, t)) || (COUNTS(2) && HAS(2, t)))
#else
#define ALL_HAVE(t) (HAS(1, t) && HAS(2, t))
#endif
#ifdef OWN_CLOCK
#define MAY_SHOW(t) (own >= (t))
#else
#define MAY_SHOW(t) (own >= (t) && ALL_HAVE(t))
#endif
inline shows() { d_step { judges && MAY_SHOW(shown + 1) -> shown++ } }
inline settle() { d_step { !judges && MAY_SHOW(least) -> shown = least; judges = true } }
inline ask() {
  d_step {
    judges ->
    if
    :: shown >= DUE -> assert(real >= DUE); expired = true
    :: else -> assert(!expired)
    fi
  }
}
/* The clock of a host that was set ahead, or back, for a moment. */
inline wall_is_wrong() {
  d_step {
    !was_wrong -> was_wrong = true;
#ifdef FOLLOWS_WALL
    own = own + 2
#endif
#ifdef FALLS
    own = 0; shown = 0
#endif
  }
}
inline take_over() {
  d_step {
    primary < 2 && (in_sync & B(primary + 1)) && knows[primary + 1] != NONE ->
    in_sync = in_sync - B(primary); primary++;
#ifdef NEW_PRIMARY_BY_CLOCK
    own = (was_wrong -> 0 : real);
#else
    own = knows[primary];
#endif
    least = own; shown = 0; judges = false;
#ifdef TIME_AT_ONCE
    shown = least; judges = true;
#endif
    known[0] = NONE; known[1] = NONE; known[2] = NONE;
    to[1] = NONE; to[2] = NONE; from[1] = NONE; from[2] = NONE;
    runs[1] = NONE; runs[2] = NONE
  }
}
#ifdef JOINER_NOT_TOLD
#define MAY_JOIN true
#else
#define MAY_JOIN (known[2] != NONE && known[2] >= shown)
#endif
inline join() {
  d_step { !(in_sync & 4) && primary < 2 && judges && MAY_JOIN -> in_sync = in_sync | 4 }
}

proctype world() {
end:
  do
  :: passes() :: send(1) :: send(2) :: receive(1) :: receive(2) :: answered(1) :: answered(2)
  :: shows() :: settle() :: ask() :: wall_is_wrong() :: take_over() :: join()
  od
}

init {
  d_step {
    knows[0] = NONE; known[0] = NONE; known[1] = NONE; known[2] = NONE;
    to[0] = NONE; to[1] = NONE; to[2] = NONE;
    from[0] = NONE; from[1] = NONE; from[2] = NONE;
    runs[0] = NONE; runs[1] = NONE; runs[2] = NONE
  }
  if
  :: in_sync = 7
  :: in_sync = 3; knows[2] = NONE
  fi;
  run world()
}
