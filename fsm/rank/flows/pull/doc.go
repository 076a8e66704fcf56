// Package pull is the exchange in which who has chunks says where they are, and who wants them reads them.
//
// A rank may rely on this: a put has one outcome, by its deadline; its memory goes back once, when its reader's word,
// the plane or the end of the lease says that nobody reads it any more; and no more pages are leased than the
// high-water mark says.
package pull
