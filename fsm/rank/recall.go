package rank

// asks says whether the rank recalls, answers whether it is recalled from.
func (c *Config) asks() bool    { return c.Recalls && c.Role.Sends() }
func (c *Config) answers() bool { return c.Recalls && c.Role.Receives() }

// asksPeers is the most peers that it recalls from at a time.
func (c *Config) asksPeers() uint32 {
	if !c.asks() {
		return 0
	}
	return c.PeersMax
}

// asksMax is the most recalls that it has in progress.
func (c *Config) asksMax() int {
	if !c.asks() {
		return 0
	}
	return int(c.RecallsMax)
}

// answersMax is the most leases that it has out for recalls.
func (c *Config) answersMax() int {
	if !c.answers() {
		return 0
	}
	return int(c.RecallsMax)
}

// busy counts what is kept for each class beside its pages, as receivers do, and what is leased to it.
func (r *Rank) busy() []uint32 {
	all := r.rooms.Busy()
	if r.cfg.answers() {
		r.recallTarget.Busy(all)
	}
	return all
}
