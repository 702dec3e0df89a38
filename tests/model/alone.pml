/* A primary that is alone in sync, and a process of its name that takes its place.
 *
 * No backup has made a promise to a primary that is alone, so etcd gives it a lease: for X from before
 * it was asked. The primary O may not notice that a process N of its name has started elsewhere, on
 * its data, and stored that it is the primary. N may end, and NEXT start. N may add a joiner, M, which
 * takes over later, and waits for its own promise alone.
 *
 * Time is as in lease.pml: `clock` passes one unit for everybody, and drift is in the constants. A
 * client calls GET at O again and again. What O has is old as soon as another primary has written.
 *
 * accept: N waits for X since it has learnt that it is the primary
 * accept-long X=4 W=2: finer time
 * reject NO_LEASE: O ticks whatever etcd has said
 * reject LEASE_FROM_ANSWER: the lease is counted from when the answer arrives
 * reject NO_MARGIN: lease and wait are equally long, so drift is not covered
 * reject NO_WAIT: N acts at once
 * reject JOINS_AT_ONCE: N adds a joiner before it acts
 * reject SETTLED_AT_ONCE: NEXT does not wait, since N has ended for certain
 */
#ifndef X
#define X 3
#endif
#ifndef W
#define W 1
#endif
#define L 1 /* the wait of a joiner */
#ifdef NO_MARGIN
#define LEASE (X + 1)
#else
#define LEASE X
#endif

mtype = { O, N, NEXT, M, NOBODY };

mtype primary = O; /* as etcd has it */
bool is_added;     /* M is in sync */

/* O: what is left of its lease; a question to etcd, how long ago it was sent, and what etcd said. */
byte lease, age;
bool asks, is_confirmed;
/* The tick line: t + W - now, and whether it covers the beginning of the GET that is under way. */
byte ticking, next, line;
bool next_covers, line_covers;

/* The process that acts next, and for how long it waits. */
mtype learnt = NOBODY;
byte wait;
bool acts;
bool has_settled; /* a process has waited here: a later one need not */
byte wait_of_joiner;

bool is_called, is_late; /* a GET; another primary had written before it began */
bool has_written;

#define LESS(x) if :: x > 0 -> x-- :: else fi
inline clock() {
  d_step {
    LESS(lease); LESS(next); LESS(line); LESS(wait); LESS(wait_of_joiner);
    if :: asks && age < LEASE -> age++ :: else fi
  }
}

/* ---- O ---- */

inline ask() { d_step { !asks -> asks = true; age = 0; is_confirmed = false } }
inline etcd_reads() { d_step { asks && !is_confirmed && primary == O -> is_confirmed = true } }
inline etcd_answers() {
  d_step {
    asks && is_confirmed -> asks = false;
#ifdef LEASE_FROM_ANSWER
    age = 0;
#endif
    if :: lease < LEASE - age -> lease = LEASE - age :: else fi;
    age = 0; is_confirmed = false
  }
}
inline read_clock() {
  d_step { ticking == 0 -> ticking = 1; next = W; next_covers = is_called }
}
inline compare_lease() {
  d_step {
    ticking == 1 ->
#ifdef NO_LEASE
    ticking = 2;
#else
    if
    :: lease >= (next -> next : 1) -> ticking = 2
    :: else -> ticking = 0; next = 0; next_covers = false
    fi;
#endif
    skip
  }
}
inline write_line() {
  d_step {
    ticking == 2 -> line = next; line_covers = next_covers; ticking = 0; next = 0;
    next_covers = false
  }
}

/* ---- processes of its name, and a joiner ---- */

inline start(who, before) {
  d_step { primary == before && (before == O || learnt == before) -> primary = who; acts = false }
}
inline learn(who) {
  d_step {
    primary == who && learnt != who -> learnt = who; wait = X;
#ifdef NO_WAIT
    wait = 0;
#endif
#ifdef SETTLED_AT_ONCE
    if :: who == NEXT -> wait = 0 :: else fi;
#endif
    if :: who == NEXT && has_settled -> wait = 0 :: else fi;
    skip
  }
}
inline act(who) {
  d_step { primary == who && learnt == who && !acts && wait == 0 -> acts = true; has_settled = true }
}
#ifdef JOINS_AT_ONCE
#define MAY_ADD true
#else
#define MAY_ADD acts
#endif
inline add_joiner(by) {
  d_step {
    primary == by && learnt == by && !is_added && MAY_ADD -> is_added = true; wait_of_joiner = L
  }
}
inline take_over() { d_step { is_added && primary != M -> primary = M; acts = false } }
inline joiner_acts() {
  d_step { primary == M && !acts && wait_of_joiner == 0 -> acts = true; learnt = M }
}
inline write() { d_step { acts && !has_written -> has_written = true } }

/* ---- the client ---- */

inline end_call() { is_called = false; is_late = false; line_covers = false; next_covers = false }
inline call() {
  d_step {
    !is_called -> is_called = true; is_late = has_written; line_covers = line > 0;
    next_covers = next > 0
  }
}
inline answer() { d_step { is_called && line_covers -> assert(!is_late); end_call() } }
inline give_up() { d_step { is_called -> end_call() } }

active proctype world() {
end:
  do
  :: clock()
  :: ask() :: etcd_reads() :: etcd_answers()
  :: read_clock() :: compare_lease() :: write_line()
  :: start(N, O) :: start(NEXT, N) :: learn(N) :: learn(NEXT) :: act(N) :: act(NEXT)
  :: add_joiner(N) :: add_joiner(NEXT) :: take_over() :: joiner_acts() :: write()
  :: call() :: answer() :: give_up()
  od
}
