"""A made-up table of traffic accidents, the same one every time. What it hides: speed and rain are to blame.

python examples/traffic_accidents.py traffic_accidents.csv
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

COLUMNS = (
    "accidents traffic_fine_amount traffic_density traffic_lights pavement_quality urban_area "
    "average_speed rain_intensity vehicle_count time_of_day"
).split()


def write_csv(path: Path, rows: int = 500) -> None:
    """Write ``rows`` stretches of road."""
    chance = random.Random(2024)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(road(chance) for _ in range(rows))


def road(chance: random.Random) -> dict[str, float]:
    """One stretch of road, and how many accidents a year it has seen."""
    seen = {
        "traffic_fine_amount": round(chance.uniform(20, 250), 2),
        "traffic_density": round(chance.uniform(0, 10), 2),
        "traffic_lights": chance.randint(0, 8),
        "pavement_quality": round(chance.uniform(0, 5), 2),
        "urban_area": chance.randint(0, 1),
        "average_speed": round(chance.uniform(25, 130), 1),
        "rain_intensity": round(chance.uniform(0, 40), 1),
        "vehicle_count": chance.randint(50, 900),
        "time_of_day": chance.randint(0, 23),
    }
    expected = (
        0.08 * seen["average_speed"]
        + 0.15 * seen["rain_intensity"]
        + 0.4 * seen["traffic_density"]
        - 0.6 * seen["pavement_quality"]
        - 0.008 * seen["traffic_fine_amount"]
    )
    return {"accidents": max(0, round(expected + chance.gauss(0, 1.5)))} | seen


if __name__ == "__main__":
    write_csv(Path(sys.argv[1] if len(sys.argv) > 1 else "traffic_accidents.csv"))
