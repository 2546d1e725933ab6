// The part of an input plane that the TILE x TILE outputs of a block need.
#pragma once
#include "../common/tile.cuh"

constexpr int INPUT_ROWS = (TILE - 1) * U + R;
constexpr int INPUT_COLUMNS = (TILE - 1) * U + S;
