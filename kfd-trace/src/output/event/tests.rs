mod documents;
mod json;
mod life;
mod stream;
