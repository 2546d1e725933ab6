// The tile of an input plane, halo included, that the TILE x TILE outputs of a block need.
//
// Gives: INPUT_ROWS, INPUT_COLUMNS; tile.cuh.
// Needs: TILE, a constant of the rung.
#pragma once
#include "../common/tile.cuh"

constexpr int INPUT_ROWS = (TILE - 1) * U + R;
constexpr int INPUT_COLUMNS = (TILE - 1) * U + S;
