"""Writes minirocket.json: features of aeon's MiniRocket that our kernels must also find.

aeon centres its kernels and pads half of them with zeros. Ours end at the present and read the first value before the
start. If a kernel lies inside the series the two are the same, so only aeon's features without padding are written.

    pip install aeon==1.6.0;  python make_minirocket.py
"""

import json
import pathlib

import numpy as np
from aeon.transformations.collection.convolution_based import MiniRocket

POINTS = 60
rng = np.random.default_rng(1)
series = np.round(np.cumsum(rng.normal(size=(5, 1, POINTS)), axis=2), 3).astype(np.float32)
rocket = MiniRocket(n_kernels=252, max_dilations_per_kernel=3, random_state=1).fit(series)
features = rocket.transform(series)
_, _, dilations, per_dilation, biases = rocket.parameters
rows, place = [], 0
for number, (dilation, per) in enumerate(zip(dilations, per_dilation)):
    for kernel in range(84):
        for _ in range(per):
            if (number % 2 + kernel) % 2 == 1:
                rows.append([int(dilation), kernel, float(biases[place]), *features[:, place].astype(float)])
            place += 1
assert place == len(biases) == features.shape[1]
rows = [[round(x, 6) for x in row] for row in rows[::2]]
text = json.dumps({"series": series[:, 0].astype(float).round(3).tolist(), "features": rows})
pathlib.Path(__file__).with_name("minirocket.json").write_text(text.replace("], ", "],\n") + "\n")
