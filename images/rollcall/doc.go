// Package rollcall holds no code, only the recipe of the rollcall image and the
// test that both ways of building it agree. It does not run a container engine.
package rollcall
