/* One group, word by word: what a READ that verifies says.
 *
 * Mirrors: Index::publish (server/index/index.cc), verify_group (common/layout.h).
 *
 * Proves what the other models build on: a READ whose words verify gives the publication whose
 * checksum was in memory at the instant at which the READ fetched the checksum word, unchanged. So
 * those models store and READ a group in one step: publications take effect with their last store.
 *
 * Modelled: checksum, header and two slots; publications change any of the slots (also back to what
 * it was) and the counter; the words are stored one by one, the checksum last; a READ fetches
 * them in any order. Two groups, because an address may be wrong; the checksum names the group.
 *
 * Left out: checksums that collide; a counter that wraps during a READ.
 *
 * accept: three publications
 * accept-long PUBLICATIONS=5: five
 * accept NO_COUNTER: one READ needs no change counter; READs that are compared do (pair.pml)
 * reject NO_PLACE: the checksum names the group's place
 * reject NO_CHECKSUM: nothing is taken for true because of when it was read
 */

#ifndef PUBLICATIONS
#define PUBLICATIONS 3
#endif

#ifdef NO_COUNTER
#define RAISED(h) (h)
#else
#define RAISED(h) ((h) + 1)
#endif
#ifdef NO_PLACE
#define PLACE(g) 0
#else
#define PLACE(g) (g)
#endif
#ifdef NO_CHECKSUM
#define VERIFIES true
#else
#define VERIFIES (c == CHECKSUM(0, h, s0, s1))
#endif
#define CHECKSUM(g, h, s0, s1) (1 + (s0) + 2 * (s1) + 4 * PLACE(g) + 8 * (h))

byte checksum[2], header[2], slot0[2], slot1[2];

/* Publication i of group 0, and which one is complete. */
byte was_header[PUBLICATIONS + 1], was_slot0[PUBLICATIONS + 1], was_slot1[PUBLICATIONS + 1];
byte complete;

proctype writer() {
  do
  :: complete < PUBLICATIONS ->
     if
     :: slot0[0] = 1 - slot0[0]
     :: slot1[0] = 1 - slot1[0]
     fi;
     header[0] = RAISED(header[0]);
     d_step {
       complete++;
       was_header[complete] = header[0]; was_slot0[complete] = slot0[0];
       was_slot1[complete] = slot1[0];
       checksum[0] = CHECKSUM(0, header[0], slot0[0], slot1[0])
     }
  :: break
  od
}

proctype reader() {
  byte g, fetched, seen, c, h, s0, s1;
  if
  :: g = 0
  :: g = 1 /* a wrong address */
  fi;
  do
  :: atomic { !(fetched & 1) -> c = checksum[g]; seen = complete; fetched = fetched | 1 }
  :: atomic { !(fetched & 2) -> h = header[g]; fetched = fetched | 2 }
  :: atomic { !(fetched & 4) -> s0 = slot0[g]; fetched = fetched | 4 }
  :: atomic { !(fetched & 8) -> s1 = slot1[g]; fetched = fetched | 8 }
  :: fetched == 15 -> break
  od;
  if
  :: VERIFIES ->
     assert(g == 0); /* else: another group was taken for this one */
     assert(h == was_header[seen] && s0 == was_slot0[seen] && s1 == was_slot1[seen])
  :: else
  fi
}

init {
  d_step {
    slot0[1] = 1;
    checksum[0] = CHECKSUM(0, 0, 0, 0);
    checksum[1] = CHECKSUM(1, 0, 1, 0)
  }
  atomic { run writer(); run reader() }
}
