package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// The checks of the gateway's settings and of its books. Each has a fact, which the model reports when it has judged.
var (
	checkTaken    = oracle.NewCheck("S17", "registrations of plain consumers, taken or refused")
	checkEngine   = oracle.NewCheck("S17", "plain engines, taken or refused")
	checkAgent    = oracle.NewCheck("S17", "agents that a plain producer may write to")
	checkAsked    = oracle.NewCheck("S17", "registrations with plain producers, taken or refused")
	checkTries    = oracle.NewCheck("L5", "tries before a plain consumer is given up")
	checkPatience = oracle.NewCheck("L1", "time that a registration of a plain consumer may wait")
	checkFits     = oracle.NewCheck("S22", "metadata of plain engines, taken or refused by name")
	checkAnswer   = oracle.NewCheck("S3", "memory that plain engines are told of")
	checkWindow   = oracle.NewCheck("contract", "windows stated for plain engines")

	checkProof     = oracle.NewCheck("S4", "expulsions of plain producers")
	checkOpen      = oracle.NewCheck("S4", "registrations with plain producers that are open or have ended")
	checkGreeting  = oracle.NewCheck("S12", "incarnations of plain engines in hellos")
	checkHeartbeat = oracle.NewCheck("L7", "heartbeats of plain consumers")
)

// factCheck returns the check of a fact.
func factCheck(f effects.Fact) oracle.Check {
	switch f {
	case factTaken:
		return checkTaken
	case factEngine:
		return checkEngine
	case factAgent:
		return checkAgent
	case factAsked:
		return checkAsked
	case factTries:
		return checkTries
	case factPatience:
		return checkPatience
	case factFits:
		return checkFits
	case factAnswer:
		return checkAnswer
	case factProof:
		return checkProof
	case factOpen:
		return checkOpen
	case factGreeting:
		return checkGreeting
	case factHeartbeat:
		return checkHeartbeat
	default:
		return checkWindow
	}
}

// unjudged is the code of a fact about which the model cannot tell.
const unjudged = effects.NotFound

// settings judges the facts that concern the gateway's settings. The code unjudged says that the model could not
// judge.
var settings = oracle.New("plain settings", "the gateway keeps each of its settings, and refuses nothing needlessly",
	func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, e *effects.Observe) {
			if e.Fact < factTaken || e.Fact >= factReached {
				return
			}
			if e.Code == unjudged {
				c.CountVoid(factCheck(e.Fact))
				return
			}
			c.CountJudged(factCheck(e.Fact))
			if e.Code != effects.OK && e.Why != nil {
				c.FailCheck(factCheck(e.Fact), "%s", e.Why.Field)
			}
		})
	})
